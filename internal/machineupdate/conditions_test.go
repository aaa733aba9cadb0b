package machineupdate

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drift"
	"github.com/capi-refit/refit/internal/node"
)

// shows demands what a condition of the MachineUpdate says.
func (w *world) shows(name string, status metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	mu := w.update()
	c := meta.FindStatusCondition(mu.Status.Conditions, name)
	require.NotNil(w.t, c, name)
	require.Equal(w.t, status, c.Status)
	require.Equal(w.t, reason, c.Reason)
	require.Contains(w.t, c.Message, message)
	require.Equal(w.t, mu.Generation, c.ObservedGeneration)
}

// pauseCluster sets spec.paused of the Cluster.
func (w *world) pauseCluster(paused bool) {
	var c clusterv1.Cluster
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "c1"}, &c))
	c.Spec.Paused = ptr.To(paused)
	require.NoError(w.t, w.Update(w.t.Context(), &c))
}

func TestReadyAndPausedOfAnUpdate(t *testing.T) {
	w := newWorld(t)
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	require.False(t, w.ask())
	w.pauseCluster(true)
	w.reconcile()
	w.shows(clusterv1.PausedCondition, metav1.ConditionTrue, clusterv1.PausedReason, "Cluster spec.paused is set to true")
	w.shows(refitv1.ReadyCondition, metav1.ConditionFalse, refitv1.ReasonPaused, "the Cluster or the Machine is paused")
	w.shows(refitv1.SucceededCondition, metav1.ConditionUnknown, refitv1.ReasonPaused, "")

	w.pauseCluster(false)
	mu := w.update()
	metav1.SetMetaDataAnnotation(&mu.ObjectMeta, clusterv1.PausedAnnotation, "")
	require.NoError(t, w.Update(t.Context(), mu))
	w.reconcile()
	w.shows(clusterv1.PausedCondition, metav1.ConditionTrue, clusterv1.PausedReason, "MachineUpdate has the cluster.x-k8s.io/paused annotation")
	require.Empty(t, w.node.calls)

	mu = w.update()
	delete(mu.Annotations, clusterv1.PausedAnnotation)
	require.NoError(t, w.Update(t.Context(), mu))
	w.reconcile()
	w.shows(clusterv1.PausedCondition, metav1.ConditionFalse, clusterv1.NotPausedReason, "")
	w.shows(refitv1.ReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason, "the node shows what is desired")
	w.shows(refitv1.SucceededCondition, metav1.ConditionTrue, string(refitv1.PhaseSucceeded), "")
}

// TestAnUpdateThatHasEndedShowsAPause, which costs one write, and nothing else does.
func TestAnUpdateThatHasEndedShowsAPause(t *testing.T) {
	w := newWorld(t)
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	require.False(t, w.ask())
	w.reconcile()
	calls := len(w.node.calls)
	c := tally{}
	w.countsManagement(c)
	w.reconcile()
	require.Zero(t, c.all(), "%s", c)
	for _, paused := range []bool{true, false} {
		w.pauseCluster(paused)
		clear(c)
		for range 3 {
			w.reconcile()
		}
		require.Equal(t, tally{"update status of v1alpha1.MachineUpdate": 1}, c)
		w.shows(clusterv1.PausedCondition, map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}[paused],
			map[bool]string{true: clusterv1.PausedReason, false: clusterv1.NotPausedReason}[paused], "")
		w.shows(refitv1.ReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason, "")
	}
	require.Len(t, w.node.calls, calls)
}

// TestNothingIsWrittenForWhatIsNotPaused: of updates that ended before there was the condition there are many.
func TestNothingIsWrittenForWhatIsNotPaused(t *testing.T) {
	w := newWorld(t)
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	require.False(t, w.ask())
	w.reconcile()
	mu := w.update()
	meta.RemoveStatusCondition(&mu.Status.Conditions, clusterv1.PausedCondition)
	require.NoError(t, w.Status().Update(t.Context(), mu))
	c := tally{}
	w.countsManagement(c)
	w.reconcile()
	require.Zero(t, c.all(), "%s", c)
}

// endedBefore makes the update one that has ended before there were the conditions Ready and Paused.
func (w *world) endedBefore() {
	mu := w.update()
	meta.RemoveStatusCondition(&mu.Status.Conditions, clusterv1.PausedCondition)
	meta.RemoveStatusCondition(&mu.Status.Conditions, refitv1.ReadyCondition)
	require.NoError(w.t, w.Status().Update(w.t.Context(), mu))
}

// TestAnUpdateThatEndedBeforeThereWasReadyShowsIt, for one write.
func TestAnUpdateThatEndedBeforeThereWasReadyShowsIt(t *testing.T) {
	w := newWorld(t)
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	require.False(t, w.ask())
	w.reconcile()
	w.endedBefore()
	c := tally{}
	w.countsManagement(c)
	for range 3 {
		require.Zero(t, w.reconcile())
	}
	require.Equal(t, tally{"update status of v1alpha1.MachineUpdate": 1}, c)
	w.shows(refitv1.ReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason, "")
	require.Empty(t, w.reconciler.late.turns)
}

// TestUpdatesThatEndedBeforeComeOneAfterTheOther: an upgrade of refit is not to have all of a fleet's be written at once.
func TestUpdatesThatEndedBeforeComeOneAfterTheOther(t *testing.T) {
	w := newWorld(t)
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	require.False(t, w.ask())
	w.reconcile()
	w.endedBefore()
	now := w.clock.Now()
	for i := range 30_000 {
		w.reconciler.late.turn(types.NamespacedName{Name: strconv.Itoa(i)}, now)
	}
	c := tally{}
	w.countsManagement(c)
	after := w.reconcile().RequeueAfter
	require.Greater(t, after, time.Hour)
	require.Less(t, after, 2*time.Hour)
	require.Zero(t, c.all(), "%s", c)
	w.clock.Step(time.Second)
	require.Equal(t, after-time.Second, w.reconcile().RequeueAfter, "it keeps its turn")
	w.clock.Step(after)
	require.Zero(t, w.reconcile())
	w.shows(refitv1.ReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason, "")
}

// TestADriftedNodeIsNotReadyAfterAMove, which leaves the status behind.
func TestADriftedNodeIsNotReadyAfterAMove(t *testing.T) {
	w := newWorld(t)
	w.node.plans = []node.Plan{writeA, {Drift: []node.Drift{{Ref: node.FileRef("/etc/app/b"), What: []string{"mode"}}}}}
	w.node.applied = []node.Status{succeeded}
	w.ask()
	w.reconcile()
	w.shows(refitv1.ReadyCondition, metav1.ConditionFalse, refitv1.DriftedCondition, "/etc/app/b")
	move := func() {
		mu := w.update()
		mu.Status = refitv1.MachineUpdateStatus{}
		require.NoError(t, w.Status().Update(t.Context(), mu))
		w.reconcile()
	}
	move()
	w.shows(refitv1.ReadyCondition, metav1.ConditionFalse, refitv1.DriftedCondition, "no longer showed")
	w.shows(refitv1.DriftedCondition, metav1.ConditionTrue, refitv1.DriftFound, "no longer showed")
	require.True(t, drift.Known(w.update()))

	// Found as it was applied, and moved, it is Ready.
	w.node.drift = []node.DriftReport{{Recorded: true, Digest: w.update().Status.ObservedDigest}}
	_, err := w.reconciler.CheckDrift(t.Context(), w.update())
	require.NoError(t, err)
	w.shows(refitv1.ReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason, "")
	move()
	w.shows(refitv1.ReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason, "")
}

// TestAPauseShowsAlsoWhileAPolicyHolds what it would hold anyway.
func TestAPauseShowsAlsoWhileAPolicyHolds(t *testing.T) {
	w := under(t, restartA, holdsAll())
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWindow, "")
	w.pauseCluster(true)
	w.reconcile()
	w.shows(clusterv1.PausedCondition, metav1.ConditionTrue, clusterv1.PausedReason, "Cluster")
	w.pauseCluster(false)
	w.reconcile()
	w.shows(clusterv1.PausedCondition, metav1.ConditionFalse, clusterv1.NotPausedReason, "")
	w.requireWaiting(refitv1.ReasonWindow, "")
}

// TestAPausedUpdateIsNotHeldAtOnce: what shows is that it is paused, and not the policy that would hold it, too.
func TestAPausedUpdateIsNotHeldAtOnce(t *testing.T) {
	w := under(t, restartA, holdsAll())
	w.reconcile()
	w.change()
	_, err := w.store.Update(t.Context(), key.Namespace, key.Name, w.digest())
	require.NoError(t, err)
	mu := w.update()
	metav1.SetMetaDataAnnotation(&mu.ObjectMeta, clusterv1.PausedAnnotation, "")
	require.NoError(t, w.Update(t.Context(), mu))
	w.reconcile()
	w.requireWaiting(refitv1.ReasonPaused, "the MachineUpdate is paused")
	w.shows(clusterv1.PausedCondition, metav1.ConditionTrue, clusterv1.PausedReason, "MachineUpdate has")
}

func TestReady(t *testing.T) {
	drifted := []metav1.Condition{{Type: refitv1.DriftedCondition, Status: metav1.ConditionTrue, Message: "the node no longer shows what was applied"}}
	for name, tc := range map[string]struct {
		status refitv1.MachineUpdateStatus
		want   metav1.Condition
	}{
		"that begins":        {refitv1.MachineUpdateStatus{Phase: refitv1.PhasePending}, metav1.Condition{Status: metav1.ConditionFalse, Reason: "Pending"}},
		"that waits":         {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting, Reason: refitv1.ReasonWindow, Message: "until\n Monday"}, metav1.Condition{Status: metav1.ConditionFalse, Reason: "Window", Message: "until"}},
		"that has failed":    {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseFailed, Reason: "Step", Message: "no"}, metav1.Condition{Status: metav1.ConditionFalse, Reason: "Step", Message: "no"}},
		"that has succeeded": {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseSucceeded, Message: "done"}, metav1.Condition{Status: metav1.ConditionTrue, Reason: "Ready", Message: "done"}},
		"of a node that has drifted": {
			refitv1.MachineUpdateStatus{Phase: refitv1.PhaseSucceeded, Message: "done", Conditions: drifted},
			metav1.Condition{Status: metav1.ConditionFalse, Reason: "Drifted", Message: "the node no longer shows what was applied"},
		},
		"with much to say": {
			refitv1.MachineUpdateStatus{Phase: refitv1.PhaseApplying, Message: strings.Repeat("wörter ", 40)},
			metav1.Condition{Status: metav1.ConditionFalse, Reason: "Applying", Message: strings.TrimSpace(strings.Repeat("wörter ", 12)) + "…"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.Type = refitv1.ReadyCondition
			got := readyOf(&tc.status)
			require.Equal(t, tc.want, got)
			require.LessOrEqual(t, len(got.Message), maxReadyMessage)
		})
	}
}
