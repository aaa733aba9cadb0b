package machineupdate

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
)

func TestAClusterThatIsNoLongerPausedWakesItsUpdates(t *testing.T) {
	cluster := func(paused bool, annotations map[string]string) *clusterv1.Cluster {
		c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "c1", Annotations: annotations}}
		c.Spec.Paused = ptr.To(paused)
		return c
	}
	annotated := map[string]string{clusterv1.PausedAnnotation: ""}
	for name, tc := range map[string]struct {
		before, after *clusterv1.Cluster
		want          bool
	}{
		"no longer paused":               {cluster(true, nil), cluster(false, nil), true},
		"no longer paused by annotation": {cluster(false, annotated), cluster(false, nil), true},
		"still paused by annotation":     {cluster(true, annotated), cluster(false, annotated), false},
		"paused now":                     {cluster(false, nil), cluster(true, nil), false},
		"not paused":                     {cluster(false, nil), cluster(false, nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, unpaused.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}))
		})
	}

	w := newWorld(t)
	w.ask()
	w.pause(true)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonPaused, "")
	request := []ctrl.Request{{NamespacedName: key}}
	require.Equal(t, request, w.reconciler.waitingForCluster(t.Context(), cluster(false, nil)))
	other := cluster(false, nil)
	other.Name = "c2"
	require.Empty(t, w.reconciler.waitingForCluster(t.Context(), other))
	require.Equal(t, request, w.reconciler.waiting(t.Context(), &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace}}))
	require.Empty(t, w.reconciler.waiting(t.Context(), &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "other"}}))
	deployment := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: "workers", Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"},
	}}
	require.Equal(t, request, w.reconciler.waitingForOwner(t.Context(), deployment))
	deployment.Labels[clusterv1.ClusterNameLabel] = "c2"
	require.Empty(t, w.reconciler.waitingForOwner(t.Context(), deployment))
}

// TestWhatIsNoNewsOfANodeAccessWakesNobody: its status is written as long as logins to nodes fail.
func TestWhatIsNoNewsOfANodeAccessWakesNobody(t *testing.T) {
	before := &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "all", Generation: 1}}
	told, changed := before.DeepCopy(), before.DeepCopy()
	told.Status.ProbedAt, changed.Generation = &metav1.Time{}, 2
	require.False(t, otherSpec.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: told}))
	require.True(t, otherSpec.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: changed}))
	require.True(t, otherSpec.Create(event.CreateEvent{Object: before}))
}

// TestEachUpdateOfAClusterShowsAPause, those that have ended, too.
func TestEachUpdateOfAClusterShowsAPause(t *testing.T) {
	w := newWorld(t)
	require.False(t, w.ask())
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "c1"}}
	paused := cluster.DeepCopy()
	paused.Spec.Paused = ptr.To(true)
	for _, e := range []event.UpdateEvent{{ObjectOld: cluster, ObjectNew: paused}, {ObjectOld: paused, ObjectNew: cluster}} {
		require.True(t, pausedOrNot.Update(e))
	}
	require.False(t, pausedOrNot.Update(event.UpdateEvent{ObjectOld: paused, ObjectNew: paused}))
	require.Equal(t, []ctrl.Request{{NamespacedName: key}}, w.reconciler.ofCluster(t.Context(), cluster))
	cluster.Name = "c2"
	require.Empty(t, w.reconciler.ofCluster(t.Context(), cluster))
}

// TestWhatPoliciesReadWakes has overrides and labels come and go, on a Cluster as on a Machine.
func TestWhatPoliciesReadWakes(t *testing.T) {
	meta := func(annotation, label string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Annotations: map[string]string{"a": annotation}, Labels: map[string]string{"l": label}}
	}
	for name, tc := range map[string]struct {
		before, after metav1.ObjectMeta
		want          bool
	}{
		"an annotation": {meta("1", "1"), meta("2", "1"), true},
		"a label":       {meta("1", "1"), meta("1", "2"), true},
		"nothing":       {meta("1", "1"), meta("1", "1"), false},
	} {
		for _, passes := range []bool{
			unpausedOrSays.Update(event.UpdateEvent{ObjectOld: &clusterv1.Cluster{ObjectMeta: tc.before}, ObjectNew: &clusterv1.Cluster{ObjectMeta: tc.after}}),
			saysOrGoes.Update(event.UpdateEvent{ObjectOld: &clusterv1.Machine{ObjectMeta: tc.before}, ObjectNew: &clusterv1.Machine{ObjectMeta: tc.after}}),
		} {
			require.Equal(t, tc.want, passes, name)
		}
	}
}

// TestAnEditWakesThoseFirstThatItIsAbout, and then the others of the namespace: what is held back may show another reason now. All are in the queue already,
// to be looked at much later.
func TestAnEditWakesThoseFirstThatItIsAbout(t *testing.T) {
	w := newWorld(t)
	queue := priorityqueue.New[ctrl.Request]("edits")
	t.Cleanup(queue.ShutDown)
	w.reconciler.Sessions = NewSessions(1, 1)
	require.NoError(t, w.reconciler.Sessions.Source().Start(t.Context(), queue))
	for i := range 6 {
		cluster := []string{"other", "edited"}[i%2]
		mu := managementtest.MachineUpdate(managementtest.Machine(key.Namespace, fmt.Sprintf("%s-%d", cluster, i), cluster))
		require.NoError(t, w.Create(t.Context(), mu))
		mu.Status.Phase, mu.Status.Reason = refitv1.PhaseWaiting, refitv1.ReasonWindow
		require.NoError(t, w.Status().Update(t.Context(), mu))
		queue.AddAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(mu)}, time.Hour)
	}
	for _, name := range []string{"other", "edited"} {
		require.NoError(t, w.Create(t.Context(), managementtest.Cluster(key.Namespace, name, map[string]string{"name": name})))
	}
	asked := 0
	w.reconciler.wakeForEdit(key.Namespace, func(cluster labels.Set) bool {
		asked++
		return cluster["name"] == "edited"
	})
	w.reconciler.wakeForEdit("elsewhere", func(labels.Set) bool { return true })
	require.Equal(t, 2, asked, "each Cluster is asked about once")
	var woken []string
	for range 6 {
		got, _ := queue.Get()
		queue.Done(got)
		cluster, _, _ := strings.Cut(got.Name, "-")
		woken = append(woken, cluster)
	}
	require.Equal(t, []string{"edited", "edited", "edited", "other", "other", "other"}, woken)
	require.Zero(t, queue.Len())
}

// nextInLine are budgets that let one update start, and count how often they are asked.
type nextInLine struct{ asked atomic.Int32 }

func (n *nextInLine) Next(context.Context, string, int) ([]types.NamespacedName, error) {
	n.asked.Add(1)
	return []types.NamespacedName{key}, nil
}

// TestABudgetThatIsFreedWakesWhoseTurnItIs once, however many updates have ended at once.
func TestABudgetThatIsFreedWakesWhoseTurnItIs(t *testing.T) {
	w := newWorld(t)
	queue := w.besideQueue()
	budgets := &nextInLine{}
	w.reconciler.Budgets = budgets
	for range 100 {
		require.Empty(t, w.reconciler.wakeForBudget(t.Context(), secret("any")))
	}
	takeNext(t, queue)
	require.Equal(t, int32(1), budgets.asked.Load())
}

func TestWhatFreesABudget(t *testing.T) {
	admitted := &refitv1.Admission{Reason: "Open"}
	for name, tc := range map[string]struct {
		before, after refitv1.MachineUpdateStatus
		want          bool
	}{
		"its work has ended":     {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseVerifying, Admission: admitted}, refitv1.MachineUpdateStatus{Phase: refitv1.PhaseSucceeded, Admission: admitted}, true},
		"it lets go":             {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting, Admission: admitted}, refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting}, true},
		"it is tried again":      {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseFailed}, refitv1.MachineUpdateStatus{Phase: refitv1.PhasePending}, true},
		"it is asked for again":  {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseSucceeded, Admission: admitted}, refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting}, false},
		"it goes on":             {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseDraining, Admission: admitted}, refitv1.MachineUpdateStatus{Phase: refitv1.PhaseApplying, Admission: admitted}, false},
		"it is admitted":         {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting}, refitv1.MachineUpdateStatus{Phase: refitv1.PhaseApplying, Admission: admitted}, false},
		"it waits for something": {refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting}, refitv1.MachineUpdateStatus{Phase: refitv1.PhaseWaiting, Message: "x"}, false},
	} {
		passes := budgetFreed.Update(event.UpdateEvent{ObjectOld: &refitv1.MachineUpdate{Status: tc.before}, ObjectNew: &refitv1.MachineUpdate{Status: tc.after}})
		require.Equal(t, tc.want, passes, name)
	}
	mu := &refitv1.MachineUpdate{}
	require.False(t, budgetFreed.Delete(event.DeleteEvent{Object: mu}))
	mu.Status.Admission = admitted
	require.True(t, budgetFreed.Delete(event.DeleteEvent{Object: mu}))
}

func TestASecretWakesThoseThatMayWaitForIt(t *testing.T) {
	w := newWorld(t)
	w.ask()
	require.NoError(t, w.Delete(t.Context(), secret("ssh")))
	w.reconcile()
	w.requireWaiting(refitv1.ReasonNodeAccess, "ssh")
	require.Equal(t, []ctrl.Request{{NamespacedName: key}}, w.reconciler.waitingForSecret(t.Context(), secret("ssh")))
	elsewhere := secret("ssh")
	elsewhere.Namespace = "other"
	require.Empty(t, w.reconciler.waitingForSecret(t.Context(), elsewhere))

	w.pause(true)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonPaused, "")
	require.Empty(t, w.reconciler.waitingForSecret(t.Context(), secret("ssh")), "no Secret ends that")
}
