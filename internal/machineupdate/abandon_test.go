package machineupdate

import (
	"testing"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/workload"
)

// TestAbandonedWhileTheWorkloadClusterIsAway abandons an update from whose node nothing can be taken back for a while.
func TestAbandonedWhileTheWorkloadClusterIsAway(t *testing.T) {
	w := failed(t, false)
	before := w.update().Status.Message
	w.workload.Err = workload.ErrUnavailable
	w.annotate(refitv1.AbandonAnnotation)
	for range 3 {
		require.Equal(t, retryDefault, w.reconcile().RequeueAfter, "it is tried again soon")
		st := w.requirePhase(refitv1.PhaseFailed)
		require.Equal(t, before+notAbandoned+"reach the workload cluster to release the node: "+workload.ErrUnavailable.Error(), st.Message)
		require.NotNil(t, st.Slot)
	}
	require.Len(t, w.eventsWith("InPlaceUpdateNotAbandoned"), 1)

	w.workload.Err = nil
	require.Zero(t, w.reconcile())
	st := w.requirePhase(refitv1.PhaseFailed)
	require.Equal(t, before+"; it was abandoned: its slot is free, and nothing of refit is on the node", st.Message)
	require.Nil(t, st.Slot)
	w.requireFree(false)
}

// TestAnotherTryIsAbandonedWhileTheWorkloadClusterIsAway does the same while another try waits for the node.
func TestAnotherTryIsAbandonedWhileTheWorkloadClusterIsAway(t *testing.T) {
	w := failed(t, false)
	w.hold(true)
	w.annotate(refitv1.RetryAnnotation)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonHold, "a failing disk")
	w.workload.Err = workload.ErrUnavailable
	w.annotate(refitv1.AbandonAnnotation)
	for range 3 {
		require.Equal(t, retryDefault, w.reconcile().RequeueAfter)
		st := w.requireWaiting(refitv1.ReasonHold, notAbandoned)
		require.Contains(t, st.Message, "a failing disk", "what it has waited for")
		require.NotNil(t, st.Slot)
	}

	w.workload.Err = nil
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseFailed)
	require.Equal(t, abandoned, st.Reason)
	require.Contains(t, st.Message, "a failing disk")
	require.NotContains(t, st.Message, notAbandoned)
	require.Nil(t, st.Slot)
	w.requireFree(false)
}
