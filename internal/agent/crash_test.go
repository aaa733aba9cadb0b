package agent

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

var errDead = errors.New("the process is dead")

// dieAt lets the agent die at the nth boundary that it comes to. What it is told is where it died, "" if it did not.
func (n *testNode) dieAt(nth int) *string {
	n.agent = n.newAgent()
	died := new(string)
	n.agent.boundary = func(where string) error {
		if *died == "" && nth > 0 {
			nth--
			return nil
		}
		if *died == "" {
			*died = where
		}
		return errDead
	}
	return died
}

// newProcess has another process go on.
func (n *testNode) newProcess() { n.agent = n.newAgent() }

// eachStepOnce requires that the journal of the last run shows no step done twice, and none failed twice.
func (n *testNode) eachStepOnce(where string) {
	n.t.Helper()
	events := n.events()
	last := len(events) - 1
	for last >= 0 && events[last] != "run-started" {
		last--
	}
	seen := map[string]int{}
	for _, e := range events[last:] {
		if !strings.HasPrefix(e, "step-started") && e != "adopted" {
			seen[e]++
			require.Equal(n.t, 1, seen[e], "%s after death at %q", e, where)
		}
	}
	require.Equal(n.t, 1, seen["run-done"], "after death at %q", where)
}

// crashCase is a second run on a node, with changes of all kinds.
type crashCase struct {
	n   *testNode
	req node.Request
}

func newCrashCase(t interface {
	require.TestingT
	Helper()
}, root string,
) crashCase {
	n := layOut(t, root)
	n.put("/etc/kubelet/restored", "distribution's")
	n.succeed(request(1, "/etc/kubelet/a", "old", "/etc/kubelet/restored", "ours", "/etc/crio/removed", "r"))
	n.put("/etc/kubelet/a", "edited")
	n.put("/etc/quiet/kept", "distribution's")
	n.units.calls = nil
	return crashCase{n, request(2, "/etc/kubelet/a", "new", "/etc/quiet/added", "n", "/etc/quiet/kept", "ours too")}
}

// memoryDir is a temporary directory in memory, where there is one: these tests write a great deal.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "refit-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// finish calls apply as a server does, until the run has ended.
func (c crashCase) finish() node.Status {
	for range 5 {
		status, err := c.n.agent.Apply(context.Background(), c.req)
		if err == nil && status.State != node.Running {
			return status
		}
		c.n.newProcess()
		if events := c.n.events(); events[len(events)-1] == "step-started write /etc/kubelet/a" {
			c.n.put("/etc/kubelet/.refit-123.tmp", "left by a write that was cut off")
		}
	}
	require.Fail(c.n.t, "the run does not end")
	return node.Status{}
}

func (c crashCase) requireDone(status node.Status, where string) {
	n := c.n
	n.newProcess()
	require.Equal(n.t, node.Succeeded, status.State, "after death at %q: %s", where, status.Message)
	require.Equal(n.t, "new", n.content("/etc/kubelet/a"), where)
	require.Equal(n.t, "n", n.content("/etc/quiet/added"), where)
	require.Equal(n.t, "(missing)", n.content("/etc/crio/removed"), where)
	require.Equal(n.t, "distribution's", n.content("/etc/kubelet/restored"), where)
	require.Contains(n.t, n.units.calls, "restart kubelet.service", where)
	n.eachStepOnce(where)
	require.Empty(n.t, n.plan(c.req).Changes, where)
	backup := n.agent.state.backups(c.req.Digest, c.req.Token)
	require.Equal(n.t, "edited", n.content(backup.nodePath("/etc/kubelet/a")), where)

	n.succeed(request(3))
	require.Equal(n.t, "distribution's", n.content("/etc/quiet/kept"), "the original survived death at %q", where)
	n.noLeftovers()
}

// stride is how many boundaries there are to one at which a walk has a run die. With -short, which the race detector runs with, few are.
func stride() int {
	if testing.Short() {
		return 6
	}
	return 1
}

func TestDeathAtEveryBoundaryWalk(t *testing.T) {
	t.Parallel()
	deaths := 0
	for nth := 0; ; nth += stride() {
		c := newCrashCase(t, memoryDir(t))
		died := c.n.dieAt(nth)
		status := c.finish()
		c.requireDone(status, *died)
		if calls := c.n.units.calls; !strings.HasPrefix(*died, "made ") {
			assert.Equal(t, []string{"reload crio.service", "restart kubelet.service"}, calls[:2], *died)
			assert.Equal(t, 1, slices.Index(calls, "restart kubelet.service"), *died)
		}
		if *died == "" {
			break
		}
		deaths++
	}
	assert.Greater(t, deaths, 35/stride())
}

func TestDeathAtEveryBoundaryOfARunThatFailsWalk(t *testing.T) {
	t.Parallel()
	deaths := 0
	for nth := 0; ; nth += stride() {
		c := newCrashCase(t, memoryDir(t))
		n := c.n
		n.units.hook = func(_ context.Context, call string) error {
			if call == "restart kubelet.service" && n.content("/etc/kubelet/a") == "new" {
				return errors.New("exit status 1")
			}
			return nil
		}
		died := n.dieAt(nth)
		status := c.finish()
		require.Equal(t, node.Failed, status.State, *died)
		require.True(t, status.RolledBack, *died)
		require.Equal(t, "restart kubelet.service failed: exit status 1 (see journalctl -u kubelet.service on the node); "+
			"the files were put back, crio.service reloaded and kubelet.service restarted", status.Message, *died)
		require.Equal(t, "edited", n.content("/etc/kubelet/a"), *died)
		require.Equal(t, "(missing)", n.content("/etc/quiet/added"), *died)
		require.Equal(t, "distribution's", n.content("/etc/quiet/kept"), *died)
		require.Equal(t, "r", n.content("/etc/crio/removed"), *died)
		require.Equal(t, "ours", n.content("/etc/kubelet/restored"), *died)
		n.eachStepOnce(*died)
		require.Equal(t, 1, n.count("rolled-back"), *died)
		rec, err := n.agent.state.loadRecord()
		require.NoError(t, err)
		require.Equal(t, "digest-1", rec.Digest, *died)

		n.newProcess()
		require.Equal(t, status, n.fail(c.req), "the same token does not try again")
		n.units.hook = nil
		c.req.Token, c.req.UnderWay = 3, true
		require.Equal(t, status, n.fail(c.req), "a run that was seen under way is not begun again when it has failed")
		c.req.UnderWay = false
		c.requireDone(n.succeed(c.req), *died)
		if *died == "" {
			break
		}
		deaths++
	}
	assert.Greater(t, deaths, 45/stride())
}

func TestCancelledRunsAreInterruptedAndNotRolledBack(t *testing.T) {
	c := newCrashCase(t, memoryDir(t))
	ctx, cancel := context.WithCancel(context.Background())
	c.n.units.hook = func(ctx context.Context, _ string) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	_, err := c.n.agent.Apply(ctx, c.req)
	require.NoError(t, err)
	assert.Equal(t, "new", c.n.content("/etc/kubelet/a"))
	c.n.units.hook = nil
	c.requireDone(c.finish(), "cancelled")
}

func TestADefectIsAFailure(t *testing.T) {
	c := newCrashCase(t, memoryDir(t))
	c.n.units.hook = func(context.Context, string) error {
		if c.n.content("/etc/kubelet/a") == "new" {
			panic("index out of range")
		}
		return nil
	}
	status := c.n.fail(c.req)
	assert.Contains(t, status.Message, "defect of the agent")
	assert.True(t, status.RolledBack)
}
