package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

func TestVerificationAfterAReboot(t *testing.T) {
	for name, tc := range map[string]struct {
		boot  func(b *bootNode) // how the node comes up
		fails string
		notes []string
	}{
		"all is well": {boot: func(*bootNode) {}},
		"a unit that the boot does not start": {boot: func(b *bootNode) {
			b.units.states["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "inactive", Type: "simple"}
		}},
		"a unit that does not come up": {boot: func(b *bootNode) {
			b.units.states["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "activating", Type: "simple"}
		}, fails: "verify failed: kubelet.service is activating"},
		"another unit that does not": {
			boot:  func(b *bootNode) { b.units.system = "degraded" },
			notes: []string{"not all units came up after the reboot (see systemctl --failed on the node)"},
		},
		"a boot that does not end": {
			boot:  func(b *bootNode) { b.units.system = "starting" },
			fails: "the node is still starting 10m0s after the reboot",
		},
		"a file that the boot writes over": {
			boot: func(b *bootNode) { b.put("/etc/boot/a", "another's") }, fails: "/etc/boot/a is not as it was written: content",
		},
		"a shutdown while it is looked at": {
			boot: func(b *bootNode) { b.units.system = "stopping" }, fails: "the node is still stopping",
		},
		"systemd says nothing": {
			boot: func(b *bootNode) { b.units.system = "" }, fails: "systemctl is-system-running",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBootNode(newTestNode(t))
			req := request(1, "/etc/boot/a", "a", "/etc/kubelet/b", "b")
			b.apply(req)
			b.start()
			waits := 0
			b.useClock(countingClock{&waits, testClock{}.Now()})
			tc.boot(b)
			status := b.apply(req)
			assert.Equal(t, 1, b.asked())
			if tc.fails != "" {
				assert.Equal(t, node.Failed, status.State)
				assert.Contains(t, status.Message, tc.fails)
				assert.Contains(t, status.Message, rebootOnceMore)
				assert.False(t, status.RolledBack)
				assert.Equal(t, "(missing)", b.content("/etc/boot/a"))
				return
			}
			assert.Equal(t, node.Succeeded, status.State, status.Message)
			assert.Equal(t, tc.notes, status.Notes)
		})
	}
	t.Run("waits for the boot to end", func(t *testing.T) {
		b := newBootNode(newTestNode(t))
		req := request(1, "/etc/boot/a", "a")
		b.apply(req)
		b.start()
		b.units.system = "initializing"
		b.useClock(bootingClock{b: b})
		b.succeed(req)
	})
}

// bootingClock lets a boot go on while time passes.
type bootingClock struct {
	testClock
	b *bootNode
}

func (c bootingClock) Wait(ctx context.Context, d time.Duration) error {
	next := map[string]string{"initializing": "starting", "starting": "running", "running": "running"}
	c.b.units.mu.Lock()
	c.b.units.system = next[c.b.units.system]
	c.b.units.mu.Unlock()
	return c.testClock.Wait(ctx, d)
}

// failAfterReboot has a run fail when the node is back.
func failAfterReboot(t *testing.T) *bootNode {
	b := newBootNode(newTestNode(t))
	b.succeed(request(1, "/etc/kubelet/b", "old"))
	b.units.calls = nil
	b.units.states["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "failed", Type: "simple"}
	status := b.finish(request(2, "/etc/kubelet/b", "new", "/etc/boot/a", "a"), false)
	require.Equal(t, node.Failed, status.State)
	delete(b.units.states, "kubelet.service")
	return b
}

func TestFilesThatWerePutBackAreReadBeforeTheNodeCounts(t *testing.T) {
	back := request(3, "/etc/kubelet/b", "old")
	t.Run("by a reboot of the next run, though no file has to change", func(t *testing.T) {
		b := failAfterReboot(t)
		plan := b.plan(back)
		assert.Empty(t, plan.Changes)
		require.Len(t, plan.Actions, 1)
		assert.Equal(t, "Reboot", plan.Actions[0].String())
		assert.Contains(t, plan.Notes[0], "which the node has not read since")
		status := b.finish(back, false)
		assert.Equal(t, node.Succeeded, status.State, status.Message)
		assert.Equal(t, "nothing had to change, but the node had to read what is there: reboot", status.Message)
		assert.Equal(t, 2, b.asked())
		assert.Empty(t, b.plan(back).Actions)
		b.succeed(back)
		assert.Equal(t, 2, b.asked())
		b.requireWitness("none")
	})
	t.Run("also when a run in between failed", func(t *testing.T) {
		b := failAfterReboot(t)
		b.units.fails["reboot"] = errors.New("exit status 1")
		b.fail(request(3, "/etc/kubelet/b", "newer"))
		delete(b.units.fails, "reboot")
		assert.Len(t, b.plan(adopting(back, 4)).Actions, 1)
	})
	t.Run("and by any other", func(t *testing.T) {
		b := failAfterReboot(t)
		b.start()
		assert.Empty(t, b.plan(back).Actions)
		b.succeed(back)
		assert.Equal(t, 1, b.asked())
	})
	t.Run("which has to be seen", func(t *testing.T) {
		b := failAfterReboot(t)
		b.delete("/proc/1/stat")
		_, err := b.agent.Plan(context.Background(), back)
		require.ErrorContains(t, err, "can't be told")
	})
}
