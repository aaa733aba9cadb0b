package machineupdate

import (
	"testing"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
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

// anotherTryAbandoned is another try of an update that has failed, which waits for a hold and is abandoned while the workload cluster is away.
func anotherTryAbandoned(t *testing.T) *world {
	t.Helper()
	w := failed(t, false)
	w.hold(true)
	w.annotate(refitv1.RetryAnnotation)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonHold, "a failing disk")
	w.workload.Err = workload.ErrUnavailable
	w.annotate(refitv1.AbandonAnnotation)
	return w
}

// TestAnotherTryIsAbandonedWhileTheWorkloadClusterIsAway does the same while another try waits for the node.
func TestAnotherTryIsAbandonedWhileTheWorkloadClusterIsAway(t *testing.T) {
	w := anotherTryAbandoned(t)
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

// TestWhatIsAbandonedNoLongerHasNoDelayedEnd takes the request back, and lets the update go on. Nothing is told then of what was abandoned once.
func TestWhatIsAbandonedNoLongerHasNoDelayedEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		applied node.Status
		ends    refitv1.Phase
	}{
		"it fails":    {node.Status{State: node.Failed, Token: 7, Message: "no space left"}, refitv1.PhaseFailed},
		"it succeeds": {succeeded, refitv1.PhaseSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			w := anotherTryAbandoned(t)
			w.reconcile()
			require.NotNil(t, w.requireWaiting(refitv1.ReasonHold, notAbandoned).DelayedEnd)

			mu := w.update()
			delete(mu.Annotations, refitv1.AbandonAnnotation)
			require.NoError(t, w.Update(t.Context(), mu))
			w.workload.Err = nil
			w.hold(false)
			w.node.plans, w.node.applied = []node.Plan{drainA, settled}, []node.Status{tc.applied}
			w.reconcile()
			st := w.requirePhase(tc.ends)
			require.Nil(t, st.DelayedEnd)
			if tc.ends == refitv1.PhaseSucceeded {
				return
			}
			w.annotate(refitv1.AbandonAnnotation)
			w.reconcile()
			require.Contains(t, w.requirePhase(refitv1.PhaseFailed).Message, "no space left")
		})
	}
}

// TestAbandonedByAnEarlierVersion: what that has shown while the end waited goes with it.
func TestAbandonedByAnEarlierVersion(t *testing.T) {
	w := failed(t, false)
	before := w.update().Status.Message
	w.annotate(refitv1.AbandonAnnotation)
	mu := w.update()
	mu.Status.Step, mu.Status.Message = "abandon: release the node (Workload)", before+notAbandoned+"connection refused"
	require.NoError(t, w.Status().Update(t.Context(), mu))
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseFailed)
	require.Nil(t, st.Slot)
	require.Empty(t, st.Step)
	require.Equal(t, before+"; it was abandoned: its slot is free, and nothing of refit is on the node", st.Message)
}
