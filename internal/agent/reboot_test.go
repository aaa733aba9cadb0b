package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

func TestReboot(t *testing.T) {
	b := newBootNode(newTestNode(t))
	req := request(1, "/etc/boot/a", "a", "/etc/kubelet/b", "b")
	status := b.apply(req)
	assert.Equal(t, node.Running, status.State)
	assert.True(t, status.Rebooting)
	assert.False(t, status.Interrupted)
	assert.Equal(t, "reboot", status.Step)
	assert.Equal(t, "the node was asked to reboot and is not back yet", status.Message)

	b.start()
	ask := node.StatusRequest{Protocol: node.Protocol, Machine: machine, Digest: "digest-1"}
	status, err := b.agent.Status(context.Background(), ask)
	require.NoError(t, err)
	assert.False(t, status.Rebooting)
	assert.True(t, status.Interrupted)
	b.succeed(req)
	assert.Equal(t, []string{
		"claimed", "run-started",
		"step-started arm the way back", "step-done arm the way back",
		"step-started keep copies", "step-done keep copies",
		"step-started write /etc/boot/a", "step-done write /etc/boot/a",
		"step-started write /etc/kubelet/b", "step-done write /etc/kubelet/b",
		"step-started reboot", "reboot-asked reboot",
		"adopted",
		"step-done reboot",
		"step-started verify", "step-done verify",
		"login-awaited confirm the way in", "step-done confirm the way in",
		"step-started record", "step-done record",
		"run-done",
	}, b.events())
	assert.Equal(t, []string{"reboot"}, b.units.calls, "a reboot includes the restart")
	b.requireWitness("none")
}

func TestWhileTheNodeGoesDown(t *testing.T) {
	req := request(1, "/etc/boot/a", "a")
	for name, tc := range map[string]struct {
		late      time.Duration
		system    string
		unasked   bool // the process died before it could write down that it has asked
		rebooting bool
		asked     int
	}{
		"nothing is asked for again":                    {0, "running", false, true, 1},
		"not while a delay is likely":                   {9 * time.Minute, "running", false, true, 1},
		"a reboot that does not come is":                {10 * time.Minute, "running", false, false, 2},
		"not while systemd shuts down, however long":    {time.Hour, "stopping", false, true, 1},
		"what was only begun is":                        {0, "running", true, false, 2},
		"unless it goes down, so it must have been":     {0, "stopping", true, true, 1},
		"a system that is not well is rebooted as well": {0, "degraded", true, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBootNode(newTestNode(t))
			if tc.unasked {
				b.agent.boundary = func(where string) error {
					if where == "made reboot" {
						return errDead
					}
					return nil
				}
			}
			b.apply(req)
			b.units.system = tc.system
			b.newProcess()
			b.up(tc.late)
			ask := node.StatusRequest{Protocol: node.Protocol, Machine: machine, Digest: "digest-1"}
			status, err := b.agent.Status(context.Background(), ask)
			require.NoError(t, err)
			assert.Equal(t, tc.rebooting, status.Rebooting)
			assert.Equal(t, !tc.rebooting, status.Interrupted)

			next := request(2, "/etc/boot/a", "b")
			b.refuse(next, node.ReasonBusy)
			assert.Equal(t, tc.asked, b.asked())
			assert.True(t, b.apply(adopting(req, 2)).Rebooting)
			assert.Equal(t, tc.asked, b.asked())
			b.start()
			b.succeed(adopting(req, 2))
			assert.Equal(t, tc.asked, b.asked())
			b.requireWitness("none")
		})
	}
}

func adopting(req node.Request, token int64) node.Request {
	req.Token = token
	return req
}

func TestWhoWaitsForARebootWaitsToTheEnd(t *testing.T) {
	b := newBootNode(newTestNode(t))
	req := request(1, "/etc/boot/a", "a")
	req.WaitSeconds = 60
	waits := 0
	b.useClock(countingClock{&waits, time.Time{}})
	assert.True(t, b.apply(req).Rebooting)
	assert.Greater(t, waits, 200, "in steps of 200 ms")
}

// countingClock lets time pass without waiting.
type countingClock struct {
	waits *int
	now   time.Time
}

func (c countingClock) Now() time.Time { return c.now }

func (c countingClock) Wait(ctx context.Context, _ time.Duration) error {
	*c.waits++
	return ctx.Err()
}

func TestASystemdThatDoesNotAnswer(t *testing.T) {
	t.Run("is not asked for a reboot, and the files are put back", func(t *testing.T) {
		b := newBootNode(newTestNode(t))
		b.units.system = ""
		status := b.fail(request(1, "/etc/boot/a", "a"))
		assert.Contains(t, status.Message, "reboot failed: systemctl is-system-running: exit status 1")
		assert.True(t, status.RolledBack)
		assert.Zero(t, b.asked())
	})
	t.Run("may be going down, so nothing is done", func(t *testing.T) {
		b := newBootNode(newTestNode(t))
		b.agent.boundary = func(where string) error {
			if where == "made reboot" {
				return errDead
			}
			return nil
		}
		req := request(1, "/etc/boot/a", "a")
		b.apply(req)
		b.newProcess()
		b.units.system = ""
		_, err := b.agent.Apply(context.Background(), req)
		require.EqualError(t, err, "systemctl is-system-running: exit status 1")
		assert.Equal(t, 1, b.asked())
		assert.Equal(t, "a", b.content("/etc/boot/a"))
	})
	t.Run("because it goes down is no failure", func(t *testing.T) {
		b := newBootNode(newTestNode(t))
		b.units.hook = func(_ context.Context, _ string) error {
			b.units.system = "stopping"
			return errors.New("connection reset")
		}
		req := request(1, "/etc/boot/a", "a")
		assert.True(t, b.apply(req).Rebooting)
		b.start()
		b.succeed(req)
	})
	t.Run("properly after it had agreed undoes nothing", func(t *testing.T) {
		b := newBootNode(newTestNode(t))
		b.apply(request(1, "/etc/boot/a", "a"))
		b.units.fails["reboot"] = errors.New("already in progress")
		status, err := b.newAgent().Run(context.Background())
		require.NoError(t, err)
		assert.True(t, status.Rebooting)
		assert.Equal(t, 2, b.asked())
		assert.Equal(t, "a", b.content("/etc/boot/a"))
	})
	t.Run("is no reason not to put the files back", func(t *testing.T) {
		b := newBootNode(newTestNode(t))
		b.units.fails["reboot"] = errors.New("exit status 1")
		b.agent.boundary = func(where string) error {
			if where == "before put back /etc/boot/a" {
				return errDead
			}
			return nil
		}
		req := request(1, "/etc/boot/a", "a")
		b.apply(req)
		b.units.system = ""
		b.newProcess()
		assert.True(t, b.fail(req).RolledBack)
		assert.Equal(t, "(missing)", b.content("/etc/boot/a"))
	})
	t.Run("in time to be cancelled interrupts", func(t *testing.T) {
		b := newBootNode(newTestNode(t))
		ctx, cancel := context.WithCancel(context.Background())
		b.units.hook = func(context.Context, string) error { cancel(); return ctx.Err() }
		req := request(1, "/etc/boot/a", "a")
		_, err := b.agent.Apply(ctx, req)
		require.NoError(t, err)
		_, err = b.newAgent().Run(ctx)
		require.ErrorIs(t, err, errInterrupted)
		assert.Equal(t, 1, b.asked())
		assert.Equal(t, "a", b.content("/etc/boot/a"))
	})
}

func TestNodesThatCanNotReboot(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(n *testNode)
		want    string
	}{
		"without systemctl":     {func(n *testNode) { n.agent.cfg.Units = nil }, "no systemctl"},
		"without a boot id":     {func(n *testNode) { n.delete("/proc/sys/kernel/random/boot_id") }, "boot_id"},
		"with an empty boot id": {func(n *testNode) { n.put("/proc/sys/kernel/random/boot_id", "\n") }, "can't be told"},
		"without a process 1":   {func(n *testNode) { n.delete("/proc/1/stat") }, "stat"},
		"with a stranger's /proc": {
			func(n *testNode) { n.put("/proc/1/stat", "1 (init) S 0") }, "can't be told",
		},
		"with a directory for it": {func(n *testNode) {
			n.delete("/proc/1/stat")
			require.NoError(n.t, os.MkdirAll(filepath.Join(n.root, "/proc/1/stat"), 0o755))
		}, "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBootNode(newTestNode(t))
			tc.prepare(b.testNode)
			status := b.fail(request(1, "/etc/boot/a", "a"))
			assert.Contains(t, status.Message, tc.want)
			assert.Contains(t, status.Message, "nothing was changed on the node")
			assert.True(t, status.RolledBack)
			assert.Equal(t, "(missing)", b.content("/etc/boot/a"))
			assert.Zero(t, b.asked())
			b.succeed(request(2, "/etc/quiet/a", "a"))
		})
	}
}

func TestTheWayInIsTestedBeforeAReboot(t *testing.T) {
	b := newBootNode(newTestNode(t))
	b.script("/usr/sbin/sshd", `exit 255`)
	status := b.fail(request(1, "/etc/boot/a", "a", "/etc/ssh/b", "bad"))
	assert.Contains(t, status.Message, "reboot failed: sshd -t does not accept the configuration")
	assert.True(t, status.RolledBack)
	assert.Equal(t, "(missing)", b.content("/etc/ssh/b"))
	assert.Zero(t, b.asked())
}

func TestADrainIsTheServers(t *testing.T) {
	n := newTestNode(t)
	n.agent.cfg.Units = nil
	status := n.succeed(request(1, "/etc/drain/a", "a"))
	assert.Equal(t, "changed 1 file", status.Message)
	require.Len(t, status.Actions, 1, "the plan says it, for the server to do")
	assert.Equal(t, "Drain", status.Actions[0].String())
	assert.Equal(t, 4, status.Total)
	for _, event := range n.events() {
		assert.NotContains(t, event, "Drain")
	}
}

func TestSystemState(t *testing.T) {
	for name, tc := range map[string]struct{ script, want, err string }{
		"running":   {"echo running", "running", ""},
		"degraded":  {"echo degraded; exit 1", "degraded", ""},
		"stopping":  {"echo stopping; exit 1", "stopping", ""},
		"unknown":   {"echo unknown; exit 4", "", "exit status 4"},
		"no answer": {"exit 1", "", "exit status 1"},
		"nothing":   {"exit 0", "", "systemd does not say in which state it is"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.script("/usr/bin/systemctl", `[ "$*" = is-system-running ] || exit 9
`+tc.script)
			state, err := host.FindSystemctl(n.agent.root).System(context.Background())
			assert.Equal(t, tc.want, state)
			if tc.err == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, tc.err)
			}
		})
	}
}
