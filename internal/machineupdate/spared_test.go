package machineupdate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// nodeReady sets whether the Node of a Machine of the world is ready.
func (w *world) nodeReady(name string, ready bool) {
	var m clusterv1.Machine
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, &m))
	status := metav1.ConditionFalse
	if ready {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: clusterv1.MachineNodeReadyCondition, Status: status, Reason: "Test"})
	require.NoError(w.t, w.Update(w.t.Context(), &m))
	w.clock.Step(2 * time.Second) // what was counted a moment ago is still good for a second
}

// withSecondWorker adds a worker m2 to the world's cluster. Both are ready.
func (w *world) withSecondWorker() {
	labels := map[string]string{clusterv1.ClusterNameLabel: "c1"}
	second := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "m2", UID: "uid-2", Labels: labels}}
	second.Spec.ClusterName, second.Status.NodeRef.Name = "c1", "n2"
	require.NoError(w.t, w.Create(w.t.Context(), second))
	w.machine(func(m *clusterv1.Machine) { m.Labels = labels })
	w.nodeReady("m1", true)
	w.nodeReady("m2", true)
}

const isIll = "workers: 1 of 2 nodes may be out at once (--max-unavailable-workers 20%), and these are: m2 (not ready)"

// TestANodeThatTheClusterCanNotSpareIsGivenBack has another worker become ill while the node is drained: drained, it would be one more
// that is out.
func TestANodeThatTheClusterCanNotSpareIsGivenBack(t *testing.T) {
	for name, end := range map[string]func(*world){"while pods leave": func(*world) {}, "when all have left": (*world).podGoes} {
		t.Run(name, func(t *testing.T) {
			w := planned(t, drainA)
			w.withSecondWorker()
			w.node.plans, w.node.applied = []node.Plan{drainA}, []node.Status{succeeded}
			w.withPod()
			w.reconcile()
			w.requirePhase(refitv1.PhaseDraining)

			w.nodeReady("m2", false)
			end(w)
			w.reconcile()
			st := w.requireWaiting(refitv1.ReasonSlot, "nothing was changed on the node yet, and it is released until the cluster can spare it: "+isIll)
			require.Nil(t, st.Slot, "others may need it")
			require.Nil(t, st.Drain)
			require.Empty(t, st.Starts)
			w.requireFree(false)
			w.clock.Step(2 * time.Second)
			w.reconcile()
			w.requireWaiting(refitv1.ReasonSlot, isIll)
			w.requireFree(false)
			require.NotContains(t, w.node.calls, "apply")

			w.nodeReady("m2", true)
			w.node.plans = []node.Plan{drainA, settled}
			if name == "while pods leave" {
				w.podGoes()
			}
			w.reconcile()
			w.requirePhase(refitv1.PhaseSucceeded)
			w.requireFree(false)
		})
	}
}

// TestADrainIsOverBeforeTheNodeIsUncordoned has another worker become ill when the last pod has left: who has read that all have left, and
// goes on after the node was released, must not take it for drained.
func TestADrainIsOverBeforeTheNodeIsUncordoned(t *testing.T) {
	w := planned(t, drainA)
	w.withSecondWorker()
	drained := 0
	w.workload.Client = workloadtest.Before(w.workload.Client, func(verb string, obj runtime.Object) error {
		o, ok := obj.(client.Object)
		d := w.update().Status.Drain
		switch {
		case d == nil || d.FinishedAt == nil || !ok:
		case drained == 0:
			drained++
			w.nodeReady("m2", false)
		case verb == "patch" && o.GetName() == nodeName:
			t.Errorf("the Node is changed while its drain counts: %+v", d)
		}
		return nil
	})
	w.reconcile()
	require.Equal(t, 1, drained, "the drain has ended")
	w.requireWaiting(refitv1.ReasonSlot, isIll)
	w.requireFree(false)
}

func TestARetryWhileOthersAreIll(t *testing.T) {
	retried := func(t *testing.T, rolledBack bool) *world {
		w := failed(t, rolledBack)
		w.withSecondWorker()
		w.nodeReady("m2", false)
		w.annotate(refitv1.RetryAnnotation)
		w.node.plans, w.node.applied = []node.Plan{drainA, settled}, []node.Status{succeeded}
		return w
	}
	t.Run("of a node that was put back waits without its slot", func(t *testing.T) {
		w := retried(t, true)
		w.reconcile()
		require.Nil(t, w.requireWaiting(refitv1.ReasonSlot, isIll).Slot, "the update that mends the other may need it")
		require.NotContains(t, w.node.calls, "apply")
		w.requireFree(false)

		w.nodeReady("m1", false) // it is what is broken, and the retry may mend it
		w.reconcile()
		w.requirePhase(refitv1.PhaseSucceeded)
	})
	t.Run("of a node that is out already mends it", func(t *testing.T) {
		w := retried(t, false)
		w.requireFree(true)
		w.reconcile()
		w.requirePhase(refitv1.PhaseSucceeded)
		w.requireFree(false)
	})
	t.Run("of a node that still works keeps what it has", func(t *testing.T) {
		w := retried(t, false)
		mu := w.update()
		mu.Status.Drain = nil
		mu.Spec.Record.Status.Drain = nil
		require.NoError(t, w.Status().Update(t.Context(), mu))
		w.reconcile()
		st := w.requireWaiting(refitv1.ReasonSlot, "the node may be half changed, so that it keeps its slot, and is not disturbed for now")
		require.Contains(t, st.Message, "refit abandon -n lab m1")
		require.Contains(t, st.Message, isIll)
		require.NotNil(t, st.Slot)
		require.NotNil(t, st.ApplyingSince)
		require.NotContains(t, w.node.calls, "apply")

		w.annotate(refitv1.AbandonAnnotation)
		w.reconcile()
		st = w.requirePhase(refitv1.PhaseFailed)
		require.Equal(t, abandoned, st.Reason)
		require.Contains(t, st.Message, "it was abandoned: its slot is free")
		require.Nil(t, st.Slot, "the other, which is ill, may have it")
		require.Nil(t, st.ApplyingSince)
		w.requireFree(false)
		require.NotContains(t, w.node.calls, "apply")
		before := w.update().ResourceVersion
		require.Zero(t, w.reconcile())
		require.Equal(t, before, w.update().ResourceVersion)
		require.False(t, w.ask())

		w.nodeReady("m2", true)
		w.annotate(refitv1.RetryAnnotation)
		w.reconcile()
		w.requirePhase(refitv1.PhaseSucceeded)
	})
}

// TestARetryThatWaitsIsAbandoned: nobody need wait for what a retry waits for. What runs on its node ends first.
func TestARetryThatWaitsIsAbandoned(t *testing.T) {
	t.Run("for a hold", func(t *testing.T) {
		w := failed(t, false)
		w.hold(true)
		w.annotate(refitv1.RetryAnnotation)
		w.reconcile()
		require.NotNil(t, w.requireWaiting(refitv1.ReasonHold, "").Slot)
		w.annotate(refitv1.AbandonAnnotation)
		w.reconcile()
		require.Nil(t, w.requirePhase(refitv1.PhaseFailed).Slot)
		w.requireFree(false)
	})
	t.Run("when what an earlier try has begun has ended, though its lease has lapsed", func(t *testing.T) {
		w := failed(t, false)
		w.hold(true)
		w.annotate(refitv1.RetryAnnotation)
		w.node.applied = []node.Status{running}
		w.reconcile()
		w.clock.Step(lease.WorkerDuration)
		w.annotate(refitv1.AbandonAnnotation)
		w.reconcile()
		require.NotNil(t, w.requireWaiting(refitv1.ReasonHold, endsFirst).Slot)
		require.True(t, w.clusterNode().Spec.Unschedulable)
		w.node.applied = []node.Status{{State: node.Succeeded}}
		w.reconcile()
		require.Nil(t, w.requirePhase(refitv1.PhaseFailed).Slot)
		w.requireFree(false)
	})
	t.Run("that has begun is not given up", func(t *testing.T) {
		w := cutOff(t, drainA)
		w.node.dialErr = errRefused
		w.reconcile()
		w.requireWaiting(refitv1.ReasonUnreachable, "")
		w.annotate(refitv1.AbandonAnnotation)
		w.reconcile()
		require.NotNil(t, w.requireWaiting(refitv1.ReasonUnreachable, "").Slot)
	})
}
