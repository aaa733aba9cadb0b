package agent

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

// deadlineUnits takes note of calls that could go on without end.
type deadlineUnits struct {
	*fakeUnits
	mu      sync.Mutex
	endless []string
}

func (d *deadlineUnits) note(ctx context.Context, call string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := ctx.Deadline(); !ok {
		d.endless = append(d.endless, call)
	}
}

func (d *deadlineUnits) Show(ctx context.Context, unit string) (host.UnitState, error) {
	d.note(ctx, "show "+unit)
	return d.fakeUnits.Show(ctx, unit)
}

func (d *deadlineUnits) Do(ctx context.Context, verb, unit string) error {
	d.note(ctx, verb+" "+unit)
	return d.fakeUnits.Do(ctx, verb, unit)
}

func (d *deadlineUnits) System(ctx context.Context) (string, error) {
	d.note(ctx, "system")
	return d.fakeUnits.System(ctx)
}

func TestNoCallOfSystemdIsWaitedForWithoutEnd(t *testing.T) {
	n := newTestNode(t)
	d := &deadlineUnits{fakeUnits: n.units}
	newAgent := func() {
		var a *Agent
		a, err := New(Config{
			Root: n.root, Clock: upClock{testClock{}, n}, Units: d, Watch: n.watch, NoSync: true, Settle: -1,
			Launcher: LauncherFunc(func(ctx context.Context, _, _ string) error {
				_, _ = a.Run(ctx)
				return nil
			}),
		})
		require.NoError(t, err)
		n.agent = a
	}
	newAgent()
	soak := 4 * time.Second
	req := request(1, "/etc/kubelet/a", "a", "/etc/nftables/a", "a", "/etc/systemd/system/a.service", "[Service]\n")
	req.Rules.Soak = &soak
	n.succeed(req)
	n.login = func() {}
	req = request(2, "/etc/kubelet/a", "b", "/etc/nftables/a", "b")
	req.Rules.Soak = &soak
	n.fail(req)
	n.login = n.logIn
	req = request(3, "/etc/boot/a", "b")
	req.Rules.Soak = &soak
	require.True(t, n.apply(req).Rebooting)
	n.put("/proc/1/stat", "1 (init) S 0 1 1 0 -1 4194560 2826 14281 119 108 4 6 12 13 20 0 1 0 2 19996672 27\n")
	newAgent()
	require.Equal(t, node.Succeeded, n.apply(req).State)
	require.Empty(t, d.endless)
}

// hungUnits is a systemd that does not answer any more.
type hungUnits struct {
	*fakeUnits
	hung func() bool
}

func (h *hungUnits) Show(ctx context.Context, unit string) (host.UnitState, error) {
	if h.hung() {
		<-ctx.Done()
		return host.UnitState{}, ctx.Err()
	}
	return h.fakeUnits.Show(ctx, unit)
}

func TestASystemdThatHangsEndsTheWatch(t *testing.T) {
	n := newTestNode(t)
	n.put("/etc/kubelet/a", "old")
	n.agent.cfg.Units = &hungUnits{n.units, func() bool {
		last, err := n.agent.state.loadStatus()
		require.NoError(t, err)
		if last == nil {
			return false
		}
		p, err := n.agent.state.progress(last.Offset)
		require.NoError(t, err)
		return p.last == stepSoak
	}}
	n.agent.cfg.ActionTimeout = 100 * time.Millisecond
	req := request(1, "/etc/kubelet/a", "new")
	req.Rules.Soak = new(20 * time.Second)
	status := n.fail(req)
	require.Contains(t, status.Message, "watch the node failed: ")
	require.True(t, status.RolledBack, status.Message)
}
