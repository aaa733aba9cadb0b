package machineupdate

import (
	"testing"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// TestARebootAfterAFailure: one that a policy asks for is like any other, drained before, and waited for.
func TestARebootAfterAFailure(t *testing.T) {
	w := newWorld(t)
	w.ask()
	failed := node.Status{State: node.Failed, Token: 1, NeedsReboot: true, Message: "restart app.service failed"}
	w.node.plans = []node.Plan{writeA}
	w.node.applied = []node.Status{failed}
	require.NotZero(t, w.reconcile().RequeueAfter, "it goes on by itself")
	st := w.update().Status
	require.NotEqual(t, refitv1.PhaseFailed, st.Phase)
	require.Contains(t, st.Message, "restart app.service failed")

	first := w.node.tokens[len(w.node.tokens)-1]
	reboot := node.Plan{Actions: rebootA.Actions}
	w.node.plans = []node.Plan{reboot, settled}
	failed.Token = st.FailedToken
	w.node.applied = []node.Status{failed, {State: node.Running, Rebooting: true}, succeeded}
	w.reconcile()
	require.Contains(t, w.node.calls, "apply")
	require.Greater(t, w.node.tokens[len(w.node.tokens)-1], first, "the node takes it for another try")
	w.requirePhase(refitv1.PhaseSucceeded)
	w.requireFree(false)

	t.Run("fails when that fails, too", func(t *testing.T) {
		w := newWorld(t)
		w.ask()
		w.node.plans, w.node.applied = []node.Plan{writeA}, []node.Status{failed}
		w.reconcile()
		again := failed
		again.Token = w.update().Status.FailedToken
		w.node.plans = []node.Plan{reboot}
		w.node.applied = []node.Status{again, {State: node.Failed, Token: 9, Message: "verify failed"}}
		w.reconcile()
		require.Equal(t, "NodeFailed", w.requirePhase(refitv1.PhaseFailed).Reason)
	})
}
