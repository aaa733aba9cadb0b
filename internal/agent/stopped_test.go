package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const runtimeUnit = "crio.service"

// dependentNode is a node whose kubelet requires the runtime, as some images have it: when the runtime can't restart the kubelet stops, and
// systemd does not start it again.
func dependentNode(t *testing.T) *testNode {
	t.Helper()
	n := newTestNode(t)
	n.units.follow = true
	n.units.lasts = []string{"kubelet.service", runtimeUnit, "other.service", "app.timer"}
	for _, name := range n.units.lasts {
		n.set(name, "active")
	}
	n.units.hook = func(_ context.Context, call string) error {
		if call != "restart "+runtimeUnit {
			return nil
		}
		if strings.Contains(n.content("/etc/runtime/a"), "bad") {
			n.set(runtimeUnit, "failed")
			n.set("kubelet.service", "inactive")
			return errors.New("exit status 1")
		}
		n.set(runtimeUnit, "active")
		return nil
	}
	return n
}

func (n *testNode) set(unit, state string) {
	n.units.states[unit] = host.UnitState{LoadState: "loaded", ActiveState: state, Type: "simple", InvocationID: "1", UnitFileState: "enabled"}
}

var restartsRuntime = disruption.Rule{Path: "/etc/runtime", Actions: []disruption.Action{{Type: disruption.Restart, Unit: runtimeUnit}}}

func runtimeRequest(token int64, content string) node.Request {
	req := request(token, "/etc/runtime/a", content)
	req.Rules.Files = append(slices.Clone(req.Rules.Files), restartsRuntime)
	return req
}

// TestAUnitWhoseConditionsAreNotMetNeedNotRun has a unit load images once, and note that it has: it stops with the runtime for good.
func TestAUnitWhoseConditionsAreNotMetNeedNotRun(t *testing.T) {
	n := dependentNode(t)
	n.put("/etc/runtime/a", "good")
	n.units.lasts = append(n.units.lasts, "load-images.service")
	n.set("load-images.service", "active")
	hook := n.units.hook
	n.units.hook = func(ctx context.Context, call string) error {
		if call == "restart "+runtimeUnit {
			n.set("load-images.service", "inactive")
		}
		return hook(ctx, call)
	}
	n.units.unmet = []string{"load-images.service"}
	status := n.succeed(runtimeRequest(1, "better"))
	require.NotContains(t, status.Message, "load-images.service")
	require.True(t, n.fail(runtimeRequest(2, "bad")).RolledBack)

	n.set("load-images.service", "active")
	n.units.unmet = nil
	n.units.fails["start load-images.service"] = errors.New("exit status 1")
	require.Contains(t, n.fail(runtimeRequest(3, "best")).Message, "load-images.service was active before, has stopped, and can't be started again")
}

func TestARollbackStartsAgainWhatHasStoppedWithTheUnit(t *testing.T) {
	n := dependentNode(t)
	n.put("/etc/runtime/a", "good")
	status := n.fail(runtimeRequest(1, "bad"))
	require.Equal(t, "active", n.units.states[runtimeUnit].ActiveState)
	require.Equal(t, "active", n.units.states["kubelet.service"].ActiveState, n.units.calls)
	require.True(t, status.RolledBack, status.Message)
	require.Contains(t, status.Message, "the files were put back and crio.service restarted; stopped with that, and started again: kubelet.service")
	require.Equal(t, "(missing)", n.content("/var/lib/refit/active.json"))

	n = dependentNode(t)
	n.put("/etc/runtime/a", "good")
	n.units.fails["start kubelet.service"] = errors.New("exit status 1")
	status = n.fail(runtimeRequest(1, "bad"))
	require.False(t, status.RolledBack)
	require.Contains(t, status.Message, "could not be put back as it was: start again what has stopped failed: "+
		"kubelet.service was active before, has stopped, and can't be started again: exit status 1 (see journalctl -u kubelet.service on the node)")
	require.NotContains(t, status.Message, "and started again")

	delete(n.units.fails, "start kubelet.service")
	status = n.succeed(runtimeRequest(2, "better"))
	require.Contains(t, n.units.calls, "start kubelet.service", "what is owed is started by the next run")
	require.Contains(t, status.Message, "; stopped with that, and started again: kubelet.service")
	require.Equal(t, "(missing)", n.content("/var/lib/refit/active.json"))
}

func TestWhatStopsWithARunIsStartedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		unit, to string
		prepare  func(n *testNode)
		lacks    bool // the other unit, after the run
		started  bool
		fails    string
	}{
		"a unit that nobody asks for":    {unit: "other.service", to: "inactive", started: true},
		"a timer":                        {unit: "app.timer", to: "inactive", started: true},
		"one that has failed":            {unit: "other.service", to: "failed", started: true},
		"one that is on its way up":      {unit: "other.service", to: "activating"},
		"one that was not active before": {unit: "other.service", to: "inactive", prepare: func(n *testNode) { n.set("other.service", "inactive") }},
		"one that ends by itself":        {unit: "job.service", to: "inactive"},
		"one that stops what the run has restarted": {
			unit: "other.service", to: "inactive", prepare: conflict,
			fails: "crio.service stops when it is started again: they can't be active together",
		},
		"one that can't be started": {
			unit: "other.service", to: "inactive", prepare: func(n *testNode) { n.units.fails["start other.service"] = errors.New("no") },
			fails: "other.service was active before, has stopped, and can't be started again: no",
		},
		"one that does not stay active": {
			unit: "other.service", to: "inactive", prepare: func(n *testNode) { n.units.follow = false },
			fails: "does not stay active",
		},
		"one that the node does not have any more": {lacks: true, unit: "app.timer", to: "active"},
		"one that goes with what the node lacks then": {
			lacks: true, unit: "kubelet.service", to: "inactive",
			prepare: func(n *testNode) { n.units.needs = map[string][]string{"kubelet.service": {"other.service"}} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := dependentNode(t)
			n.put("/etc/runtime/a", "good")
			if tc.prepare != nil {
				tc.prepare(n)
			}
			before := n.units.hook
			n.units.hook = func(ctx context.Context, call string) error {
				if call == "restart "+runtimeUnit && n.content("/etc/runtime/a") != "good" {
					if tc.lacks {
						n.units.states["other.service"] = host.UnitState{LoadState: "not-found", ActiveState: "inactive"}
					}
					n.set(tc.unit, tc.to)
				}
				return before(ctx, call)
			}
			if tc.fails != "" {
				require.Contains(t, n.fail(runtimeRequest(1, "new")).Message, tc.fails)
				return
			}
			message := n.succeed(runtimeRequest(1, "new")).Message
			require.Equal(t, tc.started, slices.Contains(n.units.calls, "start "+tc.unit))
			require.Equal(t, tc.started, strings.Contains(message, "started again"), message)
			require.Equal(t, tc.started, strings.HasSuffix(message, "; stopped with that, and started again: "+tc.unit), message)
		})
	}
}

// conflict has the runtime stop when the other unit starts.
func conflict(n *testNode) {
	before := n.units.hook
	n.units.hook = func(ctx context.Context, call string) error {
		if call == "start other.service" {
			n.set(runtimeUnit, "inactive")
		}
		return before(ctx, call)
	}
}

func TestWhatARunStopsStaysStopped(t *testing.T) {
	n := dependentNode(t)
	n.units.needs = map[string][]string{"app.timer": {"other.service"}}
	before := n.units.hook
	n.units.hook = func(ctx context.Context, call string) error {
		if call == "stop other.service" {
			n.set("app.timer", "inactive")
		}
		return before(ctx, call)
	}
	n.succeed(unitRequest(1, node.Unit{Name: "other.service", Active: new(false)}))
	require.Equal(t, []string{"stop other.service"}, n.units.calls)
}

func TestAUnitThatStartsStopsNoOther(t *testing.T) {
	n := dependentNode(t)
	n.set("new.service", "inactive")
	n.units.hook = func(_ context.Context, call string) error {
		if call == "start new.service" {
			n.set("kubelet.service", "inactive")
		}
		return nil
	}
	status := n.succeed(unitRequest(1, node.Unit{Name: "new.service", Active: new(true)}))
	require.Contains(t, status.Message, "and started again: kubelet.service")
}

// TestWhatWasActiveIsKnownAfterALossOfPower has the process die right after the kubelet has stopped.
func TestWhatWasActiveIsKnownAfterALossOfPower(t *testing.T) {
	n := dependentNode(t)
	n.put("/etc/runtime/a", "good")
	dead := false
	n.agent.boundary = func(where string) error {
		if dead = dead || where == "made restart crio.service"; dead {
			return errDead
		}
		return nil
	}
	req := runtimeRequest(1, "bad")
	require.Equal(t, node.Running, n.apply(req).State)
	require.Equal(t, "inactive", n.units.states["kubelet.service"].ActiveState)
	n.newProcess()
	require.True(t, n.fail(req).RolledBack)
	require.Equal(t, "active", n.units.states["kubelet.service"].ActiveState)
}

func TestAfterABootItIsAboutWhatABootStarts(t *testing.T) {
	b := newBootNode(dependentNode(t))
	state := b.units.states["other.service"]
	state.UnitFileState = "disabled"
	b.units.states["other.service"] = state
	req := request(1, "/etc/boot/a", "new")
	require.True(t, b.apply(req).Rebooting)
	for _, name := range []string{"kubelet.service", "other.service"} {
		state := b.units.states[name]
		state.ActiveState = "inactive"
		b.units.states[name] = state
	}
	b.start()
	require.Contains(t, b.succeed(req).Message, "; stopped with that, and started again: kubelet.service")
	require.Equal(t, "inactive", b.units.states["other.service"].ActiveState)
}
