package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

// bootNode is a node that goes down some time after it was asked to reboot: when a test lets it.
type bootNode struct {
	*testNode
	boots int
	due   bool // a reboot was agreed to
	// deadly is the boundary at which a process is to die, whichever process comes to it, and died where one did.
	deadly func(string) error
	died   *string
}

func newBootNode(n *testNode) *bootNode {
	b := &bootNode{testNode: n}
	b.start()
	n.units.hook = func(_ context.Context, call string) error {
		b.due = b.due || call == "reboot" && n.units.fails[call] == nil
		return nil
	}
	return b
}

// start boots the node as a machine that is a container: the kernel stays, and the first process is another.
func (b *bootNode) start() {
	b.boots++
	b.due = false
	b.put("/proc/sys/kernel/random/boot_id", "5ab89406-4dd0-4420-b13d-f44a608659b7\n")
	b.put("/proc/1/stat", fmt.Sprintf("1 (a) b)) S 0 1 1 0 -1 4194560 2826 14281 119 108 4 6 12 13 20 0 1 0 %d 19996672 27\n", b.boots))
	b.units.system = "running"
	b.newProcess()
}

func (b *bootNode) newProcess() {
	b.agent = b.newAgent()
	if b.died != nil && *b.died == "" {
		b.agent.boundary = b.deadly
	}
}

// finish calls apply as a server does, until the run has ended. Between two calls the node goes down if it is to, or always.
func (b *bootNode) finish(req node.Request, powerFails bool) node.Status {
	for range 6 {
		status, err := b.agent.Apply(context.Background(), req)
		if err == nil && status.State != node.Running {
			return status
		}
		if err == nil {
			require.False(b.t, status.Interrupted && status.Rebooting, "%+v", status)
		}
		if b.due || powerFails {
			b.start()
		} else {
			b.newProcess()
		}
	}
	require.Fail(b.t, "the run does not end")
	return node.Status{}
}

// asked counts how often systemd was asked to reboot the node.
func (b *bootNode) asked() int {
	n := 0
	for _, call := range b.units.calls {
		if call == "reboot" {
			n++
		}
	}
	return n
}

// requireWitness requires that the journal of the last run shows a reboot: begun in one boot, done in another, and not
// begun again after that.
func (b *bootNode) requireWitness(where string) {
	b.t.Helper()
	last, err := b.agent.state.loadStatus()
	require.NoError(b.t, err)
	entries, err := b.agent.state.journalFrom(last.Offset)
	require.NoError(b.t, err)
	begun, done := "", ""
	for _, e := range entries {
		switch {
		case e.Event == eventAwaited:
		case e.Step != stepReboot:
			require.Empty(b.t, e.Boot, where)
		case e.Event == eventDone:
			require.Empty(b.t, done, "done twice after death at %q", where)
			done = e.Boot
		default:
			require.Empty(b.t, done, "%s after it was done, after death at %q", e.Event, where)
			require.Contains(b.t, []string{"", e.Boot}, begun, "begun in two boots, after death at %q", where)
			begun = e.Boot
		}
	}
	require.NotEmpty(b.t, begun, where)
	require.NotEmpty(b.t, done, where)
	require.NotEqual(b.t, begun, done, where)
}

// newBootCase is a second run on a node, with changes of all kinds of which one takes a reboot.
func newBootCase(t *testing.T) (*bootNode, node.Request) {
	c := newCrashCase(t, memoryDir(t))
	c.n.put("/etc/boot/a", "edited")
	c.req.Resources = append(c.req.Resources, wanted("/etc/boot/a", "new"))
	return newBootNode(c.n), c.req
}

func (b *bootNode) requireNew(where string) {
	for path, want := range map[string]string{
		"/etc/boot/a": "new", "/etc/kubelet/a": "new", "/etc/quiet/added": "n", "/etc/crio/removed": "(missing)",
		"/etc/kubelet/restored": "distribution's",
	} {
		require.Equal(b.t, want, b.content(path), "%s after death at %q", path, where)
	}
}

func (b *bootNode) requireOld(where string) {
	for path, want := range map[string]string{
		"/etc/boot/a": "edited", "/etc/kubelet/a": "edited", "/etc/quiet/added": "(missing)", "/etc/crio/removed": "r",
		"/etc/kubelet/restored": "ours", "/etc/quiet/kept": "distribution's",
	} {
		require.Equal(b.t, want, b.content(path), "%s after death at %q", path, where)
	}
	rec, err := b.agent.state.loadRecord()
	require.NoError(b.t, err)
	require.Equal(b.t, "digest-1", rec.Digest, where)
}

// atEachBoundary has the agent die at each of the boundaries that a run comes to, on a node of its own each time.
func atEachBoundary(t *testing.T, least int, run func(b *bootNode, req node.Request, died *string)) {
	t.Helper()
	deaths := 0
	for nth := 0; ; nth += stride() {
		b, req := newBootCase(t)
		b.died = b.dieAt(nth)
		b.deadly = b.agent.boundary
		run(b, req, b.died)
		if *b.died == "" {
			break
		}
		deaths++
	}
	assert.Greater(t, deaths, least/stride())
}

func TestDeathAtEveryBoundaryOfARebootWalk(t *testing.T) {
	t.Parallel()
	atEachBoundary(t, 42, func(b *bootNode, req node.Request, died *string) {
		status := b.finish(req, false)
		require.Equal(t, node.Succeeded, status.State, "%s after death at %q", status.Message, *died)
		require.Equal(t, "changed 6 files, then: reboot", status.Message)
		b.requireNew(*died)
		require.Equal(t, 2, b.boots, "one reboot, after death at %q", *died)
		require.Equal(t, []string{"reboot"}, b.units.calls, "after death at %q", *died)
		b.eachStepOnce(*died)
		b.requireWitness(*died)

		b.newProcess()
		require.Equal(t, status, b.succeed(req), "the second time does nothing")
		require.Equal(t, []string{"reboot"}, b.units.calls, *died)
		b.noLeftovers()
	})
}

func TestLossOfPowerAtEveryBoundaryOfARebootWalk(t *testing.T) {
	t.Parallel()
	atEachBoundary(t, 42, func(b *bootNode, req node.Request, died *string) {
		status := b.finish(req, true)
		if *died == "begun "+stepConfirm { // a boot that nobody asked for, before refit came in, can be the change's
			require.True(t, status.RolledBack, status.Message)
			return
		}
		require.Equal(t, node.Succeeded, status.State, "%s after loss of power at %q", status.Message, *died)
		b.requireNew(*died)
		want := 1
		if *died == "begun "+stepReboot {
			want = 0 // the loss of power was the reboot
		}
		require.Equal(t, want, b.asked(), "after loss of power at %q", *died)
		b.eachStepOnce(*died)
		b.requireWitness(*died)
	})
}

func TestDeathAtEveryBoundaryOfARebootThatSystemdRefusesWalk(t *testing.T) {
	t.Parallel()
	atEachBoundary(t, 40, func(b *bootNode, req node.Request, died *string) {
		b.units.fails["reboot"] = errors.New("exit status 1")
		status := b.finish(req, false)
		require.Equal(t, node.Failed, status.State, *died)
		require.True(t, status.RolledBack, *died)
		require.Equal(t, "reboot failed: systemctl reboot: exit status 1 (see systemd-inhibit --list and journalctl -b on the "+
			"node); the files were put back", status.Message, *died)
		b.requireOld(*died)
		b.eachStepOnce(*died)
		require.Equal(t, 1, b.boots, *died)
	})
}

func TestDeathAtEveryBoundaryOfARunThatFailsAfterItsRebootWalk(t *testing.T) {
	t.Parallel()
	atEachBoundary(t, 65, func(b *bootNode, req node.Request, died *string) {
		b.units.states["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "failed", Type: "simple"}
		status := b.finish(req, false)
		require.Equal(t, node.Failed, status.State, *died)
		require.False(t, status.RolledBack, "the node runs with the new files, after death at %q", *died)
		require.Equal(t, "verify failed: kubelet.service is failed (see journalctl -u kubelet.service on the node); the files "+
			"were put back, "+rebootOnceMore, status.Message, *died)
		b.requireOld(*died)
		b.eachStepOnce(*died)
		b.requireWitness(*died)
		require.Equal(t, 2, b.boots, "it is not rebooted on and on, after death at %q", *died)
		require.Equal(t, []string{"reboot"}, b.units.calls, *died)

		b.start()
		require.Equal(t, status, b.fail(req), "the same token does not try again")
		delete(b.units.states, "kubelet.service")
		req.Token = 3
		again := b.finish(req, false)
		require.Equal(t, node.Succeeded, again.State, again.Message)
		b.requireNew(*died)
		require.Equal(t, 4, b.boots, "a retry reboots as well")
	})
}
