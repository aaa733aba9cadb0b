package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

const (
	theService = "/etc/systemd/system/refit-resume.service"
	theTimer   = "/etc/systemd/system/refit-resume.timer"
)

// theLinks have the timer run in each way in which a node comes up.
var theLinks = []string{
	"/etc/systemd/system/timers.target.wants/refit-resume.timer",
	"/etc/systemd/system/emergency.target.wants/refit-resume.timer",
	"/etc/systemd/system/rescue.target.wants/refit-resume.timer",
}

// newTimer returns what watches over runs of an agent in a directory.
func newTimer(n *testNode, dir string) timer {
	n.put(dir+"/refit-node", "the agent")
	return timer{cfg: Config{Root: n.root, Executable: filepath.Join(n.root, dir, "refit-node"), Units: n.units}, disk: n.agent.disk}
}

func (n *testNode) noTimer(dirs ...string) {
	n.t.Helper()
	for _, dir := range dirs {
		require.Equal(n.t, "(missing)", n.content(dir+"/refit-resume"))
		require.Equal(n.t, "the agent", n.content(dir+"/refit-node"))
	}
	for _, gone := range append([]string{theService, theTimer}, theLinks...) {
		_, err := os.Lstat(filepath.Join(n.root, gone))
		require.ErrorIs(n.t, err, os.ErrNotExist)
	}
}

func TestTimer(t *testing.T) {
	n := newTestNode(t)
	n.put("/etc/systemd/system/other.service", "")
	w := newTimer(n, "/opt/bin")
	for range 2 { // what a process that died has left is no hindrance
		require.NoError(t, w.Arm(t.Context()))
	}
	require.Equal(t, "the agent", n.content("/opt/bin/refit-resume"))
	info, err := os.Stat(filepath.Join(n.root, "/opt/bin/refit-resume"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode())
	require.Contains(t, n.content(theService), "Type=simple\n")
	require.Contains(t, n.content(theService), "StartLimitIntervalSec=0\n", "a limit would end the watch")
	require.Contains(t, n.content(theService), "RuntimeMaxSec=", "one that hangs is ended")
	require.Contains(t, n.content(theService), "/opt/bin/refit-resume\" --root \""+n.root+"\" resume\n")
	for _, link := range theLinks {
		require.Equal(t, n.content(theTimer), n.content(link), "it is there after a boot")
	}
	for _, unit := range []string{theTimer, theService} {
		require.Contains(t, n.content(unit), "DefaultDependencies=no\nConflicts=shutdown.target\nBefore=shutdown.target\n", "emergency mode has no sysinit.target")
	}
	require.Contains(t, n.content(theService), "Wants=systemd-remount-fs.service\nAfter=systemd-remount-fs.service local-fs.target\n", "nothing can be put back on a root file system that can't be written")
	require.Equal(t, []string{"daemon-reload", "restart refit-resume.timer"}, n.units.calls[2:])

	n.units.calls = nil
	for range 2 {
		require.NoError(t, w.Disarm(t.Context()))
	}
	require.Equal(t, []string{"stop refit-resume.timer", "daemon-reload", "reset-failed refit-resume.service"}, n.units.calls)
	n.noTimer("/opt/bin")

	n.units.fails["restart refit-resume.timer"] = errors.New("exit status 1")
	require.ErrorContains(t, w.Arm(t.Context()), "nothing would put the node back if refit could not come in any more: systemctl restart refit-resume.timer: exit status 1")
}

func TestNothingRemainsOfAnArmingThatFailed(t *testing.T) {
	for name, fail := range map[string]func(n *testNode){
		"at a file":   func(n *testNode) { n.put("/etc/systemd", "no directory") },
		"at the link": func(n *testNode) { n.put("/etc/systemd/system/timers.target.wants", "no directory") },
		"at systemd": func(n *testNode) {
			n.units.fails["daemon-reload"] = errors.New("exit status 1")
			n.units.fails["stop refit-resume.timer"] = errors.New("exit status 5")
			n.units.states[resumeTimer] = host.UnitState{LoadState: "not-found", ActiveState: "inactive"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			w := newTimer(n, "/opt/bin")
			fail(n)
			require.Error(t, w.Arm(t.Context()))
			_ = w.Disarm(t.Context()) // what is in the way of the files is in its way, too
			require.Equal(t, "(missing)", n.content("/opt/bin/refit-resume"))
			for _, gone := range []string{theService, theTimer} {
				_, err := os.Lstat(filepath.Join(n.root, gone))
				require.Error(t, err)
			}
		})
	}
	t.Run("but a timer that runs on ends it itself", func(t *testing.T) {
		n := newTestNode(t)
		w := newTimer(n, "/opt/bin")
		require.NoError(t, w.Arm(t.Context()))
		n.units.fails["stop refit-resume.timer"] = errors.New("exit status 1")
		require.Error(t, w.Disarm(t.Context()))
		require.Equal(t, "the agent", n.content("/opt/bin/refit-resume"))
		delete(n.units.fails, "stop refit-resume.timer")
		require.NoError(t, w.Disarm(t.Context()))
		n.noTimer("/opt/bin")
	})
}

func TestNothingRemainsInADirectoryOfAnAgentFromBefore(t *testing.T) {
	const odd = `/opt/50% "odd"\bin`
	for name, between := range map[string]func(w timer) error{
		"when another disarms": func(timer) error { return nil },
		"when another arms":    func(w timer) error { return w.Arm(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			before, w := newTimer(n, odd), newTimer(n, "/srv/bin")
			require.NoError(t, before.Arm(t.Context()))
			require.NoError(t, between(w))
			require.NoError(t, w.Disarm(t.Context()))
			n.noTimer(odd, "/srv/bin")
		})
	}
	t.Run("but what is not refit's does", func(t *testing.T) {
		n := newTestNode(t)
		n.put("/opt/bin/other", "")
		n.put(theService, "[Service]\nExecStart=\""+n.root+"/opt/bin/other\" resume\nExecStart=\""+n.root+"\nExecStart=x\nExecStart=\"\\\nExecStart=\"relative/refit-resume\"\n")
		require.NoError(t, newTimer(n, "/srv/bin").Disarm(t.Context()))
		require.Empty(t, n.content("/opt/bin/other"))
		n.noTimer("/srv/bin")
	})
}

// blockingWatch has something happen in the middle of a Disarm.
type blockingWatch struct {
	*fakeWatch
	during func()
}

func (w blockingWatch) Disarm(ctx context.Context) error {
	w.during()
	return w.fakeWatch.Disarm(ctx)
}

// TestATimerThatHasJustFiredDoesNotEndTheWatchOverTheNextRun has a timer fire when a run has ended, and the next one begin before the
// watch over the first has ended.
func TestATimerThatHasJustFiredDoesNotEndTheWatchOverTheNextRun(t *testing.T) {
	n, req := guardedNode(t, t.TempDir())
	n.succeed(req)
	next := request(3, "/etc/nftables/a.conf", "accept")
	resuming := n.newAgent()
	ended := make(chan node.Status)
	resuming.cfg.Watch = blockingWatch{n.watch, func() {
		locked, err := n.agent.state.locked(claimLock)
		require.NoError(t, err)
		require.True(t, locked, "nobody begins a run meanwhile")
		go func() {
			status, _ := n.agent.Apply(context.Background(), next)
			ended <- status
		}()
	}}
	n.login = func() { require.True(t, n.watch.Armed()); n.logIn() }
	require.NoError(t, resuming.Resume(t.Context()))
	status := <-ended
	require.Equal(t, node.Succeeded, status.State, status.Message)
}

func TestATimerFromBeforeDoesNotWorkOnTheNextRun(t *testing.T) {
	n, req := guardedNode(t, t.TempDir())
	n.agent.boundary = func(where string) error {
		if where == "before "+stepArm {
			return errDead
		}
		return nil
	}
	require.Equal(t, node.Running, n.apply(req).State)
	was := n.events()
	n.newProcess()
	require.NoError(t, n.agent.Resume(t.Context()))
	require.Equal(t, was, n.events())
	n.succeed(req)
}
