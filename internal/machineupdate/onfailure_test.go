package machineupdate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
)

// toReboot returns a world whose node has failed to do what was planned, and by a policy is to be rebooted now.
func toReboot(t *testing.T, plan node.Plan, policies ...*refitv1.ChangeManagementPolicy) (*world, node.Status) {
	w := under(t, plan, policies...)
	failed := node.Status{State: node.Failed, Token: 1, NeedsReboot: true, Message: "restart app.service failed"}
	w.node.plans, w.node.applied = []node.Plan{plan}, []node.Status{failed}
	require.NotZero(t, w.reconcile().RequeueAfter, "it goes on by itself")
	st := w.update().Status
	require.NotEqual(t, refitv1.PhaseFailed, st.Phase)
	require.Contains(t, st.Message, "restart app.service failed")
	failed.Token = st.FailedToken
	w.node.plans, w.node.applied = []node.Plan{rebootOnly, settled}, []node.Status{failed}
	return w, failed
}

// rebootOnly is what the node plans then.
var rebootOnly = node.Plan{Actions: rebootA.Actions}

// TestARebootAfterAFailure: one that a policy asks for is like any other, drained before, and waited for, whatever the change was let
// go for.
func TestARebootAfterAFailure(t *testing.T) {
	for name, plan := range map[string]node.Plan{"of what does not disturb": writeA, "of a restart": restartA} {
		t.Run(name, func(t *testing.T) {
			w, failed := toReboot(t, plan)
			first := w.node.tokens[len(w.node.tokens)-1]
			w.node.applied = []node.Status{failed, {State: node.Running, Rebooting: true}, succeeded}
			begun := false
			w.node.before = func(verb string) {
				if begun = begun || verb == "apply"; verb == "apply" {
					require.NotNil(t, w.update().Status.Slot)
					require.NotNil(t, w.update().Status.Drain)
					require.True(t, w.clusterNode().Spec.Unschedulable)
					require.Contains(t, w.currentMachine().Annotations, clusterv1.MachineSkipRemediationAnnotation)
				}
			}
			w.reconcile()
			require.True(t, begun)
			require.Greater(t, w.node.tokens[len(w.node.tokens)-1], first, "the node takes it for another try")
			w.requirePhase(refitv1.PhaseSucceeded)
			w.requireFree(false)
		})
	}

	t.Run("waits for the window when the change did not need one", func(t *testing.T) {
		w, _ := toReboot(t, writeA, nightly())
		calls := len(w.node.tokens)
		w.reconcile()
		w.requireWaiting(refitv1.ReasonWindow, "it takes: Reboot")
		require.Len(t, w.node.tokens, calls, "nothing begins")
		require.False(t, w.clusterNode().Spec.Unschedulable)
		w.restart()
		w.node.plans = []node.Plan{rebootOnly}
		w.reconcile()
		require.Nil(t, w.requireWaiting(refitv1.ReasonWindow, "it takes: Reboot").Slot, "others need not wait for the window, too")
		w.clock.Step(2 * time.Hour)
		w.node.plans = []node.Plan{rebootOnly, settled}
		w.node.applied = append(w.node.applied[:1:1], succeeded)
		w.reconcile()
		w.requirePhase(refitv1.PhaseSucceeded)
		require.Len(t, w.update().Status.Starts, 1)
	})

	t.Run("of a node that does not come back fails", func(t *testing.T) {
		w, failed := toReboot(t, restartA)
		w.node.applied = []node.Status{failed}
		w.node.applyErr = remote.ErrConnectionLost
		w.reconcile()
		require.NotNil(t, w.requirePhase(refitv1.PhaseApplying).RebootingSince)
		w.node.dialErr = errRefused
		w.clock.Step(2*w.reconciler.RebootTimeout + disruption.DefaultConfirmWithin + time.Second)
		require.Zero(t, w.reconcile())
		require.Equal(t, "NodeNotBack", w.requirePhase(refitv1.PhaseFailed).Reason)
	})

	t.Run("fails when that fails, too", func(t *testing.T) {
		w, failed := toReboot(t, writeA)
		w.node.applied = []node.Status{failed, {State: node.Failed, Token: 9, Message: "verify failed"}}
		w.reconcile()
		require.Equal(t, "NodeFailed", w.requirePhase(refitv1.PhaseFailed).Reason)
	})
}
