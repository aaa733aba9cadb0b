package machineupdate

import (
	"testing"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// TestAWithdrawnUpdateLeavesANodeThatAnotherHas withdraws an update whose node was released before, and is another's now.
func TestAWithdrawnUpdateLeavesANodeThatAnotherHas(t *testing.T) {
	w := cutOff(t, drainA)
	w.node.applied = []node.Status{{State: node.Succeeded}}
	w.hold(true)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonHold, "")
	w.holdLease("admin/ann")
	w.node.calls = nil
	w.mark(false)
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseFailed)
	require.Equal(t, refitv1.ReasonWithdrawn, st.Reason)
	require.Contains(t, st.Message, "when it was last seen, so it may have a part of the specs")
	require.Empty(t, w.node.calls)
}

// TestAWithdrawnUpdateTellsWhatTheNodeHas asks the node once: before it is released.
func TestAWithdrawnUpdateTellsWhatTheNodeHas(t *testing.T) {
	for name, tc := range map[string]struct {
		said node.Status
		want string
	}{
		"changes that were made":    {node.Status{State: node.Succeeded}, "nobody has compared them"},
		"work that has failed":      {node.Status{State: node.Failed, Token: 3, Message: "no space left"}, "the work on the node had failed: no space left"},
		"work that was taken back":  {node.Status{State: node.Failed, Token: 3, RolledBack: true}, "the node shows again what it showed before"},
		"work that was interrupted": {node.Status{State: node.Running, Interrupted: true}, "it may have a part of the specs"},
	} {
		t.Run(name, func(t *testing.T) {
			w := cutOff(t, drainA)
			w.node.applied = []node.Status{tc.said}
			w.mark(false)
			w.reconcile()
			st := w.requirePhase(refitv1.PhaseFailed)
			require.Contains(t, st.Message, tc.want)
			require.Equal(t, tc.said.Token, st.FailedToken)
			require.Equal(t, []string{"status"}, w.node.calls)
		})
	}
}
