package machineupdate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/slots"
	"github.com/capi-refit/refit/schedule"
)

// moveAll moves all to where another refit server leads, and returns what the MachineUpdate was before.
func (w *world) moveAll() *refitv1.MachineUpdate {
	before := moveObjects(w.t, w.Client)
	require.Empty(w.t, w.update().Status)
	w.reconciler.Slots = &slots.Slots{Client: w.Client, Live: w.Client, Limits: w.reconciler.Slots.Limits, Clock: w.clock}
	w.reconciler.Gate, w.reconciler.Instance = newGate(w.Client, w.policies, w.clock), "refit-elsewhere"
	return before
}

func TestASucceededUpdateStaysSoWhenItIsMoved(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	calls := len(w.node.calls)
	before := w.moveAll()

	require.True(t, w.ask(), "the hook needs no restored status")
	w.reconcile()
	require.Len(t, w.node.calls, calls, "the node is not looked at")
	st := w.update().Status
	require.Equal(t, refitv1.PhaseSucceeded, st.Phase)
	require.Equal(t, before.Status.Message, st.Message)
	require.Equal(t, before.Status.LastSucceededAt, st.LastSucceededAt)
	require.Equal(t, metav1.ConditionTrue, st.Conditions[0].Status)
	require.True(t, finished(w.update()))
}

func TestAFailedUpdateStaysSoWhenItIsMoved(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.plans, w.node.applied = []node.Plan{drainA}, []node.Status{{State: node.Failed, Message: "the unit does not start"}}
	w.reconcile()
	calls := len(w.node.calls)
	before := w.moveAll()
	require.Equal(t, refitv1.PhaseFailed, before.Status.Phase)
	require.NotNil(t, before.Status.Slot)

	require.False(t, w.ask())
	w.reconcile()
	require.Len(t, w.node.calls, calls)
	st := w.update().Status
	require.Equal(t, refitv1.PhaseFailed, st.Phase)
	require.Equal(t, before.Status.Message, st.Message)
	require.Equal(t, before.Status.Slot, st.Slot)
	require.Equal(t, before.Status.Starts, st.Starts)
	require.Equal(t, before.Status.Token, st.Token)
	require.True(t, w.clusterNode().Spec.Unschedulable, "it may be half changed")

	w.annotate(refitv1.AbandonAnnotation)
	w.reconcile()
	require.False(t, w.clusterNode().Spec.Unschedulable, "the cordon of before the move is refit's")
	require.Nil(t, w.update().Status.Slot)
}

// TestAnUpdateThatWaitsIsNotRecorded holds the writes down that a fleet takes whose updates wait.
func TestAnUpdateThatWaitsIsNotRecorded(t *testing.T) {
	w := newWorld(t)
	w.restrict()
	w.readPolicies()
	w.ask()
	w.node.plans = []node.Plan{drainA}
	w.reconcile()
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWindow, "restrictive")
	require.Nil(t, w.update().Spec.Record)
	w.moveAll()
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWindow, "restrictive")
}

func TestFewWritesOfTheRecord(t *testing.T) {
	records := 0
	for _, c := range survive(t, memoryDir(t), restartPath, nothing, -1) {
		if c.String() == "management patch MachineUpdate" {
			records++
		}
	}
	require.LessOrEqual(t, records, 9, "one of them takes the finalizer off, another has who comes next drain again what is uncordoned")
}

// restrict makes a policy by which nothing may start.
func (w *world) restrict() {
	policy := &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "never", UID: "policy-1"}}
	policy.Spec.Strategy = schedule.RestrictiveStrategy
	require.NoError(w.t, w.Create(w.t.Context(), policy))
}

// TestPoliciesThatHaveNotArrivedYet has a Cluster be moved here, or no longer be paused, before this server has read the policies that came
// with it.
func TestPoliciesThatHaveNotArrivedYet(t *testing.T) {
	w := newWorld(t)
	w.reconciler.Arrivals = []Arrivals{w.policies}
	w.ask()
	w.restrict()
	require.Equal(t, retryArrivals, w.reconcile().RequeueAfter)
	w.requireWaiting(refitv1.ReasonPaused, "ChangeManagementPolicy never")
	require.Empty(t, w.node.calls)

	w.readPolicies()
	w.node.plans = []node.Plan{drainA}
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWindow, "restrictive")

	var of clusterv1.Cluster
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "c1"}, &of))
	of.Spec.Paused = ptr.To(true)
	require.NoError(t, w.Update(t.Context(), &of))
	w.machine(func(m *clusterv1.Machine) { m.Labels = map[string]string{"changed": "true"} })
	w.clock.Step(time.Minute)
	w.annotate(refitv1.RetryAnnotation) // it is looked at again
	w.reconcile()
	w.requireWaiting(refitv1.ReasonPaused, "paused")
	_, known := w.reconciler.arrived.Load(of.UID)
	require.False(t, known, "policies may come while it is paused")
}

// TestWhatIsMovedAwayIsLeftAlone has clusterctl be about to delete what it has copied.
func TestWhatIsMovedAwayIsLeftAlone(t *testing.T) {
	t.Run("a MachineUpdate", func(t *testing.T) {
		w := cutOff(t, drainA)
		mu := w.update()
		metav1.SetMetaDataAnnotation(&mu.ObjectMeta, clusterctlv1.DeleteForMoveAnnotation, "")
		require.NoError(t, w.Update(t.Context(), mu))
		calls, version := len(w.node.calls), w.update().ResourceVersion
		w.reconcile()
		require.Len(t, w.node.calls, calls)
		require.Equal(t, version, w.update().ResourceVersion)
		require.True(t, w.clusterNode().Spec.Unschedulable)
	})
	t.Run("a Machine", func(t *testing.T) {
		w := cutOff(t, drainA)
		w.machine(func(m *clusterv1.Machine) {
			m.Finalizers = []string{clusterv1.MachineFinalizer}
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterctlv1.DeleteForMoveAnnotation, "")
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.PausedAnnotation, "")
		})
		require.NoError(t, w.Delete(t.Context(), w.currentMachine()))
		w.node.applied = []node.Status{{State: node.Succeeded}}
		w.reconcile()
		st := w.requireWaiting(refitv1.ReasonPaused, "paused")
		require.NotNil(t, st.ApplyingSince, "it is not given up")
		require.NotNil(t, st.Slot)
	})
}

// TestAMoveWaitsForTheNode requires that clusterctl finds its annotation exactly as long as refit works on the node.
func TestAMoveWaitsForTheNode(t *testing.T) {
	w := cutOff(t, drainA)
	require.True(t, moveBlocked(w.update()))
	w.machine(func(m *clusterv1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.PausedAnnotation, "")
	})
	w.node.applied = []node.Status{running}
	w.reconcile()
	require.True(t, moveBlocked(w.update()), "what runs on the node ends first")
	w.node.applied = []node.Status{{State: node.Succeeded}}
	w.reconcile()
	w.requireWaiting(refitv1.ReasonPaused, "paused")
	require.False(t, moveBlocked(w.update()))
}

// TestAStatusIsCompletedThatWasRestoredInBetween has the reconciler restore the status of an update whose record a drift check has just
// written, before that comes to write the status.
func TestAStatusIsCompletedThatWasRestoredInBetween(t *testing.T) {
	begin := func(t *testing.T, looksOnly bool, between func(*world)) (*world, error) {
		w := newWorld(t)
		w.succeed()
		first := true
		w.reconciler.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				if first {
					first = false
					between(w)
				}
				return c.SubResource(sub).Update(ctx, o, opts...)
			},
		})
		u := &update{Reconciler: w.reconciler, mu: w.update(), looksOnly: looksOnly}
		return w, u.set(t.Context(), func(s *refitv1.MachineUpdateStatus) {
			s.Drift = &refitv1.DriftStatus{ObservedCheck: "1"}
			u.repairBegins(s, "the node has drifted and is brought back")
		})
	}
	restore := func(w *world) {
		u := &update{Reconciler: w.reconciler, mu: w.update()}
		require.True(w.t, u.mu.Behind())
		require.NoError(w.t, u.restore(w.t.Context()))
		require.NotEqual(w.t, "1", w.update().Status.Drift.ObservedCheck)
	}
	w, err := begin(t, true, restore)
	require.NoError(t, err)
	require.Equal(t, "the node has drifted and is brought back", w.update().Status.Message)
	require.Equal(t, "1", w.update().Status.Drift.ObservedCheck)
	require.False(t, w.update().Behind())

	_, err = begin(t, true, func(w *world) {
		restore(w)
		u := &update{Reconciler: w.reconciler, mu: w.update()}
		require.NoError(w.t, u.set(w.t.Context(), func(s *refitv1.MachineUpdateStatus) { s.Attempts = 7 }))
	})
	require.True(t, halfWritten(err), "whoever has gone on since is not written over: %v", err)

	_, err = begin(t, false, restore)
	require.True(t, halfWritten(err), "whoever works on a node leaves it to the one who has restored the status: %v", err)
}
