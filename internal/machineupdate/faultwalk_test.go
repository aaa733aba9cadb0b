package machineupdate

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
)

// fault is what happens at a call.
type fault string

const (
	nothing      fault = ""
	killedBefore fault = "the process is killed before"
	killedAfter  fault = "the process is killed after"
	refused      fault = "the call fails"
	answerLost   fault = "the answer is lost of"
	leaseStolen  fault = "the lease is stolen before"
	rivalled     fault = "a second server reconciles before"
	apiGone      fault = "the workload cluster is away for minutes from"
	diskFull     fault = "the node's disk is full from"
	clockForward fault = "an hour passes before"
	clockBack    fault = "the clock is put back by an hour before"
	nodeReplaced fault = "the Node is registered again before"

	movedBefore fault = "the process is killed and all is moved to another management cluster before"
	pausedFrom  fault = "the Cluster is paused from"

	withdrawnFrom fault = "Cluster API no longer asks from"
)

// plannedFault is what is to happen at the nth call of all processes, and what did.
type plannedFault struct {
	*sync.Mutex
	fault fault
	nth   int
	calls *[]call // all that were made, in order
}

func newFault(f fault, nth int) plannedFault {
	return plannedFault{Mutex: &sync.Mutex{}, fault: f, nth: nth, calls: &[]call{}}
}

func (f plannedFault) String() string {
	if calls := *f.calls; f.fault != nothing && f.nth < len(calls) {
		return fmt.Sprintf("%s call %d (%s)", f.fault, f.nth, calls[f.nth])
	}
	return "nothing happens"
}

// due notes a call, and says what happens at it.
func (w *walkWorld) due(_ *process, c call) fault {
	w.plan.Lock()
	defer w.plan.Unlock()
	*w.plan.calls = append(*w.plan.calls, c)
	if len(*w.plan.calls)-1 != w.plan.nth {
		return nothing
	}
	return w.plan.fault
}

// memoryDir returns a directory in memory, where there is one: the walks write a great deal.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "refit-walk-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func walkContext() context.Context { return ctrl.LoggerInto(context.Background(), logr.Discard()) }

// survive makes the update of path in a world in which a fault happens, and returns the calls that it took.
func survive(t *testing.T, dir, path string, f fault, nth int) []call {
	t.Helper()
	w := newWalkWorld(walkContext(), t, dir, path, newFault(f, nth))
	defer w.node.end()
	w.finish()
	w.requireDone()
	return *w.plan.calls
}

// applies reports whether a fault at the nth call differs from all others. What a process has read dies with it, so that a death at
// any time before the next effect is the same; and a lease that is stolen is seen by who looks at it, and by the node.
func (f fault) applies(nth int, c call) bool {
	switch f {
	case killedBefore:
		return nth == 0 || c.place == machineItself
	case movedBefore:
		return nth == 0 || c.writes || c.place == machineItself
	case killedAfter, answerLost:
		return c.writes
	case leaseStolen:
		return c.place == machineItself || strings.HasSuffix(c.what, "Lease")
	case apiGone:
		return c.place == machineItself || c.place == workloadCluster && c.writes
	case diskFull:
		return c.place == machineItself && c.writes
	case clockForward, clockBack:
		return c.place == machineItself || c.place == management && c.writes
	case nodeReplaced:
		return c.writes
	case rivalled: // of what is only read, every third is enough
		return c.writes || nth%3 == 0
	default:
		return true
	}
}

// stride is how many points of a walk there are to one that is walked. With -short, which the race detector runs with, few are: it makes each
// take ten times as long, and sees the same code at all of them. Without, all are walked.
func stride() int {
	if testing.Short() {
		return 40
	}
	return 1
}

// walked reports whether the nth point is.
func walked(nth int) bool { return nth%stride() == 0 }

// TestFaultWalk makes an update that drains and restarts a unit, and one that reboots, and has each of the faults happen at each
// of the calls.
func TestFaultWalk(t *testing.T) {
	everywhere(t, killedBefore, killedAfter, refused, answerLost, leaseStolen, rivalled)
}

// TestOutageWalk does the same with what lasts for a while.
func TestOutageWalk(t *testing.T) {
	everywhere(t, apiGone, diskFull, clockForward, clockBack)
}

// everywhere has faults happen at all calls at which they may.
func everywhere(t *testing.T, faults ...fault) {
	for name, path := range map[string]string{"restart": restartPath, "reboot": rebootPath} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := memoryDir(t)
			calls := survive(t, memoryDir(t), path, nothing, -1)
			require.Greater(t, len(calls), 60)
			points := 0
			for nth, c := range calls {
				for _, f := range faults {
					if !f.applies(nth, c) {
						continue
					}
					points++
					if !walked(points) {
						continue
					}
					root := dir + "/" + strconv.Itoa(points)
					ok := t.Run(fmt.Sprintf("%s/%d/%s", f, nth, c), func(t *testing.T) { survive(t, root, path, f, nth) })
					if ok {
						require.NoError(t, os.RemoveAll(root))
					}
				}
			}
			t.Logf("%d calls, %d points; one in %d was walked", len(calls), points, stride())
		})
	}
}
