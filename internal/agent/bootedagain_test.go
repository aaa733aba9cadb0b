package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/probe"
	"github.com/capi-refit/refit/internal/node"
)

// powerNode is a node that loses power in the middle of a run. After that its units, and what a probe asks, take a while to come up.
type powerNode struct {
	*testNode
	boots int
	// left is how often somebody has to wait until the boot has ended.
	left int
	// kubelet is the state of the kubelet after a boot.
	kubelet string
	// broken says that what the probe asks does not come back.
	broken func() bool
}

func newPowerNode(t *testing.T) *powerNode {
	t.Helper()
	p := &powerNode{testNode: layOut(t, memoryDir(t)), kubelet: "active", broken: func() bool { return false }}
	p.put("/etc/kubelet/a", "old")
	p.units.hook = func(_ context.Context, call string) error {
		if call == "restart kubelet.service" {
			p.units.states["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active", Type: "simple", InvocationID: fmt.Sprint("restart-", p.boots)}
		}
		return nil
	}
	return p
}

func (p *powerNode) wire() {
	p.useClock(powerClock{n: p})
	p.agent.cfg.ActionTimeout = fewLooks
	p.agent.probes = func(bool) []probe.Probe {
		return []probe.Probe{probe.New("it", func(context.Context) error {
			if p.left > 0 || p.broken() {
				return errors.New("connection refused")
			}
			return nil
		})}
	}
}

// losePower boots the node.
func (p *powerNode) losePower(boot int) {
	p.boots++
	p.put("/proc/1/stat", fmt.Sprintf("1 (init) S 0 1 1 0 -1 4194560 2826 14281 119 108 4 6 12 13 20 0 1 0 %d 19996672 27\n", p.boots+1))
	p.put("/proc/uptime", "5.00 1.00\n")
	p.left = boot
	p.show("starting", "activating")
	p.newProcess()
	p.wire()
}

func (p *powerNode) show(system, kubelet string) {
	p.units.mu.Lock()
	defer p.units.mu.Unlock()
	p.units.system = system
	p.units.states["kubelet.service"] = host.UnitState{
		LoadState: "loaded", ActiveState: kubelet, Type: "simple", InvocationID: fmt.Sprint("boot-", p.boots, kubelet),
	}
}

// powerClock lets the boot go on while time passes.
type powerClock struct {
	testClock
	n *powerNode
}

func (c powerClock) Wait(ctx context.Context, _ time.Duration) error {
	if c.n.left > 0 {
		if c.n.left--; c.n.left == 0 {
			c.n.show("running", c.n.kubelet)
		}
	}
	return ctx.Err()
}

// finish calls apply as a server does. After the first death the node has lost power.
func (p *powerNode) finish(req node.Request, boot int) node.Status {
	p.t.Helper()
	for range 5 {
		status, err := p.agent.Apply(context.Background(), req)
		if err == nil && status.State != node.Running {
			return status
		}
		p.losePower(boot)
	}
	require.Fail(p.t, "the run does not end")
	return node.Status{}
}

func soaked() node.Request {
	req := request(1, "/etc/kubelet/a", "new", "/etc/quiet/b", "new")
	req.Rules.Soak = new(20 * time.Second)
	return req
}

func TestLossOfPowerDoesNotUndoWhatWorksWalk(t *testing.T) {
	t.Parallel()
	for name, kubelet := range map[string]string{"": "active", "a unit that the boot does not start": "inactive"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deaths := 0
			for nth := 0; ; nth += stride() {
				p := newPowerNode(t)
				p.kubelet = kubelet
				died := p.dieAt(nth)
				p.wire()
				status := p.finish(soaked(), 100)
				if strings.HasSuffix(*died, "begun "+stepConfirm) { // a boot that nobody asked for, before refit came in, can be the change's
					require.True(t, status.RolledBack, status.Message)
					deaths++
					continue
				}
				require.Equal(t, node.Succeeded, status.State, "after loss of power at %q: %s", *died, status.Message)
				require.Equal(t, "new", p.content("/etc/kubelet/a"), *died)
				p.eachStepOnce(*died)
				if *died == "" {
					break
				}
				deaths++
			}
			require.Greater(t, deaths, 20/stride())
		})
	}
}

func TestLossOfPowerWhileARunGoesBackWalk(t *testing.T) {
	t.Parallel()
	deaths := 0
	for nth := 0; ; nth += stride() {
		p := newPowerNode(t)
		p.broken = func() bool { return p.content("/etc/kubelet/a") == "new" }
		died := p.dieAt(nth)
		p.wire()
		status := p.finish(soaked(), 100)
		require.Equal(t, node.Failed, status.State, *died)
		require.Contains(t, status.Message, "it worked before and does not now", *died)
		require.True(t, status.RolledBack, "after loss of power at %q: %s", *died, status.Message)
		require.Equal(t, "old", p.content("/etc/kubelet/a"), *died)
		if *died == "" {
			break
		}
		deaths++
	}
	require.Greater(t, deaths, 20/stride())
}

func TestABootThatDoesNotEndSaysNothingOfAChange(t *testing.T) {
	p := newPowerNode(t)
	p.agent.boundary = func(where string) error {
		if where == "begun "+stepSoak {
			return errDead
		}
		return nil
	}
	require.Equal(t, node.Running, p.apply(soaked()).State)
	p.losePower(1)
	p.left = 0
	p.show("starting", "active")
	p.succeed(soaked())
}

func TestANodeThatGoesDownSaysNothingOfAChange(t *testing.T) {
	n := newTestNode(t)
	n.put("/etc/kubelet/a", "old")
	waits := 0
	n.useClock(hookClock{func() {
		if waits++; waits == 3 {
			n.units.mu.Lock()
			defer n.units.mu.Unlock()
			n.units.system = systemStopping
			n.units.states["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "deactivating", Type: "simple"}
		}
	}})
	req := soaked()
	require.Equal(t, node.Running, n.apply(req).State)
	require.Equal(t, "new", n.content("/etc/kubelet/a"))
	require.Zero(t, n.count("step-failed "+stepSoak))
	n.units.system = "running"
	delete(n.units.states, "kubelet.service")
	n.newProcess()
	n.succeed(req)
}

func TestAWaitForALoginThatIsOverIsNotDelayedByABoot(t *testing.T) {
	n, req := guardedNode(t, t.TempDir())
	p := &powerNode{testNode: n, kubelet: "active", broken: func() bool { return false }}
	n.login = func() {}
	n.agent.boundary = func(where string) error {
		if where == "begun "+stepConfirm {
			return errDead
		}
		return nil
	}
	require.Equal(t, node.Running, n.apply(req).State)
	p.losePower(1000)
	backAfter := -1
	p.agent.boundary = func(where string) error {
		if where == "ended put back /etc/nftables/a.conf" {
			backAfter = 1000 - p.left
		}
		return nil
	}
	require.NoError(t, p.agent.Resume(t.Context()))
	require.Zero(t, backAfter, "files are put back at once")
	last, err := n.agent.state.loadStatus()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(last.Status.Message, "confirm the way in failed: the node was booted again"), last.Status.Message)
}

func TestNobodyWaitsForABootWhereNothingIsChanged(t *testing.T) {
	p := newPowerNode(t)
	p.succeed(request(1, "/etc/quiet/a", "a"))
	p.losePower(100)
	p.succeed(request(2, "/etc/quiet/a", "a"))
	require.Equal(t, 100, p.left)
}
