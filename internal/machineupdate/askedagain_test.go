package machineupdate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// TestLongWorkIsFollowedInTurns has work take an hour, in which the Machine is deleted: that is noticed, and what the update shows meanwhile
// stays.
func TestLongWorkIsFollowedInTurns(t *testing.T) {
	w := planned(t, restartA)
	soaking := node.Status{State: node.Running, Step: node.StepSoak, Done: 4, Total: 5}
	w.node.applied = []node.Status{soaking}
	w.node.before = func(verb string) {
		if verb == "status" {
			w.clock.Step(10 * time.Second)
		}
	}
	began := w.clock.Now()
	for range 5 {
		require.Equal(t, time.Millisecond, w.reconcile().RequeueAfter)
		st := w.requirePhase(refitv1.PhaseApplying)
		require.Equal(t, node.StepSoak, st.Step)
		require.Equal(t, int32(1), st.Attempts, "it is one try")
	}
	require.Less(t, w.clock.Now().Sub(began), 10*time.Minute)

	w.machine(func(m *clusterv1.Machine) { m.Finalizers = []string{"test/stays"} })
	require.NoError(t, w.Delete(t.Context(), w.currentMachine()))
	w.reconcile()
	w.requireWaiting(refitv1.ReasonDeleting, "the Machine is being deleted")
}

// TestTakenBeforeTheWorkBegins has somebody mark the Machine while the node plans.
func TestTakenBeforeTheWorkBegins(t *testing.T) {
	for name, mark := range map[string]func(*world){
		"deleted first": annotateWith(clusterv1.DeleteMachineAnnotation),
		"not healthy": func(w *world) {
			w.remediated(metav1.ConditionFalse, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := planned(t, restartA)
			w.node.before = func(verb string) {
				if verb == "plan" {
					mark(w)
				}
			}
			w.reconcile()
			w.requireWaiting(refitv1.ReasonTaken, "about to take")
			require.NotContains(t, w.node.calls, "apply")
			w.requireFree(false)
		})
	}
}

// TestANodeThatDiesWhileItIsDrained has the node be gone for good in a drain without a timeout: others get its slot, and may mend it.
func TestANodeThatDiesWhileItIsDrained(t *testing.T) {
	w := planned(t, drainA)
	w.withPod()
	w.reconcile()
	w.requirePhase(refitv1.PhaseDraining)
	w.node.dialErr = errRefused
	w.reconcile()
	require.NotNil(t, w.requireWaiting(refitv1.ReasonUnreachable, "").Slot, "it may be back in a moment")

	w.clock.Step(longestStall)
	w.reconcile()
	require.Nil(t, w.requireWaiting(refitv1.ReasonUnreachable, "").Slot)
	w.requireFree(false)

	w.node.dialErr = nil
	w.node.plans, w.node.applied = []node.Plan{drainA, settled}, []node.Status{succeeded}
	w.reconcile()
	require.Contains(t, []refitv1.Phase{refitv1.PhaseDraining, refitv1.PhaseSucceeded}, w.update().Status.Phase, "it begins again")
}

// TestAbandonWhileItKeepsANode gives an update up that waits after its node was asked to begin: what keeps others from their slot must
// have an end.
func TestAbandonWhileItKeepsANode(t *testing.T) {
	t.Run("that is drained", func(t *testing.T) {
		w := planned(t, drainA)
		w.withPod()
		w.reconcile()
		w.node.dialErr = errRefused
		w.reconcile()
		w.annotate(refitv1.AbandonAnnotation)
		w.reconcile()
		st := w.requirePhase(refitv1.PhaseFailed)
		require.Contains(t, st.Message, "nothing was changed on the node")
		require.Nil(t, st.Slot)
		w.requireFree(false)
	})
	t.Run("whose run has failed, and waits for others", func(t *testing.T) {
		w := planned(t, restartA)
		w.withSecondWorker()
		w.node.plans = []node.Plan{restartA, rebootA}
		w.node.applied = []node.Status{{State: node.Failed, NeedsReboot: true, Token: 1, Message: "x did not take effect"}}
		w.reconcile()
		w.nodeReady("m2", false)
		w.reconcile()
		w.requireWaiting(refitv1.ReasonSlot, "refit abandon -n lab m1")
		w.annotate(refitv1.AbandonAnnotation)
		w.reconcile()
		st := w.requirePhase(refitv1.PhaseFailed)
		require.Contains(t, st.Message, "the node may be half changed")
		require.Nil(t, st.Slot)
	})
}
