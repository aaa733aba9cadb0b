package agent

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const brokenUnit = "broken.service"

// dropIn is a file whose change restarts the unit.
const dropIn = "/etc/kubelet/broken.conf"

// brokenNode is a node with a unit that is as state says, and can't be started.
func brokenNode(t *testing.T, state host.UnitState) *testNode {
	n := newTestNode(t)
	state.LoadState, state.Type = "loaded", "oneshot"
	n.units.states[brokenUnit] = state
	n.units.hook = func(_ context.Context, call string) error {
		if call != "restart "+brokenUnit {
			return nil
		}
		state.ActiveState, state.InvocationID = "failed", "2"
		n.units.states[brokenUnit] = state
		return errRefused
	}
	return n
}

// neverStarted is a unit that the node has and that nobody has started.
var neverStarted = host.UnitState{ActiveState: "inactive"}

func restarting(req node.Request) node.Request {
	req.Rules.Files = disruption.Table{{Path: "/etc/kubelet", Actions: []disruption.Action{
		{Type: disruption.DaemonReload}, {Type: disruption.Restart, Unit: brokenUnit},
	}}}
	return req
}

// TestAUnitThatDidNotWorkBeforeIsNotOwed brings a file to a unit that can't start, and takes it back: then the node is as it was.
func TestAUnitThatDidNotWorkBeforeIsNotOwed(t *testing.T) {
	for name, state := range map[string]host.UnitState{
		"it was never started": neverStarted, "it had failed": {ActiveState: "failed", InvocationID: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			n := brokenNode(t, state)
			status := n.fail(restarting(request(1, dropIn, "new")))
			require.True(t, status.RolledBack, status.Message)
			require.Contains(t, status.Message, "restart broken.service failed: exit status 1 (see journalctl -u broken.service on the node); the files were put back")
			require.Equal(t, "(missing)", n.content(dropIn))
			require.Contains(t, status.Notes, "restart broken.service failed, and broken.service did not work before either: exit status 1 (see journalctl -u broken.service on the node)")

			back := restarting(request(2))
			require.Empty(t, n.plan(back).Actions)
			n.succeed(back)
			require.Equal(t, node.Failed, n.fail(restarting(request(3, dropIn, "new"))).State, "what is brought to a unit has to work with it")
		})
	}
}

// TestAFileIsTakenFromAUnitThatHasFailed has a unit fail for a reason of its own between two updates.
func TestAFileIsTakenFromAUnitThatHasFailed(t *testing.T) {
	n := newTestNode(t)
	n.succeed(restarting(request(1, dropIn, "new")))
	n.units.states[brokenUnit] = host.UnitState{LoadState: "loaded", ActiveState: "failed", Type: "simple", InvocationID: "2"}
	n.units.fails["restart "+brokenUnit] = errRefused
	require.Contains(t, n.fail(restarting(request(2, dropIn, "newer"))).Message, "restart broken.service failed", "what is brought to it does not mend it")
	require.Equal(t, "new", n.content(dropIn))
	back := restarting(request(3))
	back.Rules.Soak = new(10 * time.Second)
	status := n.succeed(back)
	require.Contains(t, status.Notes, "restart broken.service failed, and broken.service did not work before either: exit status 1 (see journalctl -u broken.service on the node)")
	require.Equal(t, "(missing)", n.content(dropIn))
}

// TestNothingIsOwedToAUnitThatNeverWorked has a policy leave a change on the node.
func TestNothingIsOwedToAUnitThatNeverWorked(t *testing.T) {
	n := brokenNode(t, neverStarted)
	first := restarting(request(1, dropIn, "new"))
	first.Rules.OnFailure = disruption.StopOnFailure
	require.False(t, n.fail(first).RolledBack)

	n.newProcess()
	n.agent.cfg.Units = nil
	n.fail(restarting(request(2))) // which changes nothing, and forgets nothing
	n.newProcess()
	back := restarting(request(3))
	n.succeed(back)
	require.Empty(t, n.plan(back).Actions)
}

// TestAUnitThatWorkedBeforeIsOwed: it has to work again, however many runs that takes.
func TestAUnitThatWorkedBeforeIsOwed(t *testing.T) {
	for name, state := range map[string]host.UnitState{
		"it runs": {ActiveState: "active", InvocationID: "1"}, "it has ended well": {ActiveState: "inactive", InvocationID: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			n := brokenNode(t, state)
			require.False(t, n.fail(restarting(request(1, dropIn, "new"))).RolledBack)
			for token := range int64(3) {
				require.Contains(t, n.fail(restarting(request(token+2))).Message, "could not be put back as it was")
			}
			n.units.hook = nil
			n.units.states[brokenUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active", InvocationID: "9"}
			n.succeed(restarting(request(9)))
			require.Empty(t, n.plan(restarting(request(10))).Actions)
		})
	}
}

// TestUnitsThatARebootMakesNeedlessAreNoted: after the boot they are looked at all the same.
func TestUnitsThatARebootMakesNeedlessAreNoted(t *testing.T) {
	n := brokenNode(t, neverStarted)
	restart := disruption.Action{Type: disruption.Restart, Unit: brokenUnit}
	units, err := n.agent.noteUnits(t.Context(), node.Plan{
		Changes: []node.Change{{Ref: node.FileRef(dropIn), Operation: node.Write, Actions: []disruption.Action{restart}}},
		Actions: []disruption.Action{{Type: disruption.Reboot}},
	}, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{brokenUnit: false}, units)
}
