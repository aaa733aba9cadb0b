package holds

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/resync"
	"github.com/capi-refit/refit/internal/workload"
)

// fleet is a world with the MachineDeployments workers, of which m1 is, and others, of which w2 is, and the control plane of cp1.
type fleet struct {
	*world
	notes *Notes
	again time.Duration // in which the last look wants another one
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	w := newWorld(t, func(m *clusterv1.Machine) { m.Labels[clusterv1.MachineDeploymentNameLabel] = "workers" })
	w2, cp1 := machine("w2"), machine("cp1")
	w2.Labels[clusterv1.MachineDeploymentNameLabel] = "others"
	cp1.Labels[clusterv1.MachineControlPlaneLabel] = ""
	kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "cp", UID: "kcp", Annotations: map[string]string{"a": "b"}}}
	cp1.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(kcp, controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"))}
	for _, o := range []client.Object{w2, cp1, kcp, deployment("workers"), deployment("others")} {
		require.NoError(t, w.management.Create(t.Context(), o))
	}
	return &fleet{world: w, notes: &Notes{Client: w.management, Workloads: w, Clock: w.clock}}
}

func deployment(name string) *clusterv1.MachineDeployment {
	return &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: name, UID: "md", Labels: map[string]string{clusterv1.ClusterNameLabel: "prod"},
	}}
}

// noted returns what is noted after another look: at the cluster, the workers, the others, and the control plane.
func (f *fleet) noted() [4]string {
	f.t.Helper()
	result, err := f.notes.Reconcile(f.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "fleet", Name: "prod"}})
	require.NoError(f.t, err)
	f.again = result.RequeueAfter
	var all [4]string
	for i, o := range []client.Object{&clusterv1.Cluster{}, &clusterv1.MachineDeployment{}, &clusterv1.MachineDeployment{}, &controlplanev1.KubeadmControlPlane{}} {
		name := [4]string{"prod", "workers", "others", "cp"}[i]
		require.NoError(f.t, f.management.Get(f.t.Context(), client.ObjectKey{Namespace: "fleet", Name: name}, o))
		all[i] = o.GetAnnotations()[HeldAnnotation]
		if _, there := o.GetAnnotations()[HeldAnnotation]; there != (all[i] != "") {
			f.t.Errorf("%s has an empty note", name)
		}
	}
	return all
}

// seize has somebody hold the lease of a node.
func (f *fleet) seize(node, holder string) {
	f.t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.DefaultNamespace, Name: lease.Name(node)}}
	at := metav1.NewMicroTime(f.clock.Now())
	l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at, LeaseDurationSeconds: ptr.To[int32](3600)}
	require.NoError(f.t, f.workload.Client.Create(f.t.Context(), l))
}

func TestWhatIsHeldIsNotedWhereItIsEdited(t *testing.T) {
	f := newFleet(t)
	writes := 0
	count := func() { writes++ }
	f.onPatch = count
	require.Equal(t, [4]string{}, f.noted())
	require.Zero(t, writes, "nothing is written where nothing is held")

	f.onPatch = nil
	f.hold(start.Add(time.Hour))
	const m1 = "m1 by alice until 2026-10-03T21:00:00Z (disk swap)"
	require.Equal(t, [4]string{m1, m1, "", ""}, f.noted())
	f.onPatch = count
	f.noted()
	require.Zero(t, writes, "what is noted is not written again")

	f.onPatch = nil
	f.seize("node-w2", "node-maintenance")
	f.seize("node-cp1", "admin/bob")
	f.seize("node-elsewhere", "x")
	const w2, cp1 = "w2 by node-maintenance, who has its node's lease", "cp1 by admin/bob, who has its node's lease"
	require.Equal(t, [4]string{cp1 + "; " + m1 + "; " + w2, m1, w2, cp1}, f.noted())

	f.workload.Err = errAway
	f.clock.Step(time.Hour + lease.Tolerance + time.Second)
	require.Equal(t, [4]string{cp1 + "; m1 by admin/alice, who has its node's lease; " + w2, "m1 by admin/alice, who has its node's lease", w2, cp1}, f.noted(),
		"a cluster that can't be asked is as it was; the hold is over by its annotation")
	f.workload.Err = nil
	f.reconcile() // its end
	require.Equal(t, [4]string{cp1, "", "", cp1}, f.noted(), "the maintenance's lease has lapsed")
	var kcp controlplanev1.KubeadmControlPlane
	require.NoError(t, f.management.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "cp"}, &kcp))
	require.Equal(t, "b", kcp.Annotations["a"])
}

func TestHowAHoldIsNoted(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"none":            {nil, ""},
		"by hand":         {map[string]string{refitv1.HoldAnnotation: "true"}, "somebody"},
		"with its reason": {map[string]string{refitv1.HoldAnnotation: "disk swap"}, "somebody (disk swap)"},
		"lapsed":          {map[string]string{refitv1.HoldAnnotation: "2026-10-03T20:00:00Z", lease.HoldByAnnotation: "alice"}, ""},
		"on one line":     {map[string]string{refitv1.HoldAnnotation: "true", lease.HoldByAnnotation: "alice", lease.HoldReasonAnnotation: "a\nb \t c"}, "alice (a b c)"},
		"cut":             {map[string]string{refitv1.HoldAnnotation: "true", lease.HoldReasonAnnotation: strings.Repeat("ä", 100)}, "somebody (" + strings.Repeat("ä", 50) + "…)"},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine("m1")
			m.Annotations = tc.annotations
			require.Equal(t, tc.want, holderOf(m, start))
		})
	}
	held, machines := map[string]string{}, []clusterv1.Machine{}
	for i := range maxNoted + 2 {
		m := machine("m" + string(rune('a'+i)))
		held[m.Name], machines = m.Name, append(machines, *m)
	}
	require.Equal(t, "ma; mb; mc; md; me; mf; mg; mh; mi; mj; and 2 more", textOf(machines, held, func(*clusterv1.Machine) bool { return true }))
}

func TestWhatIsNotNoted(t *testing.T) {
	f := newFleet(t)
	f.hold(time.Time{})
	cluster := &clusterv1.Cluster{}
	key := client.ObjectKey{Namespace: "fleet", Name: "prod"}
	require.NoError(t, f.management.Get(t.Context(), key, cluster))
	cluster.Spec.Paused = ptr.To(true)
	require.NoError(t, f.management.Update(t.Context(), cluster))
	require.Equal(t, [4]string{}, f.noted(), "a Cluster that may be on its way to another management cluster")
	require.NoError(t, f.management.Delete(t.Context(), cluster))
	result, err := f.notes.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	require.NoError(t, err)
	require.Zero(t, result)
}

// TestLeasesAreLookedAtSeldomWhereNothingIsUnderWay: to ask hundreds of clusters each minute is what an idle fleet would cost.
func TestLeasesAreLookedAtSeldomWhereNothingIsUnderWay(t *testing.T) {
	f := newFleet(t)
	update := managementtest.MachineUpdate(machine(key.Name))
	require.NoError(t, f.management.Create(t.Context(), update))
	after := func(phase refitv1.Phase, reason string) time.Duration {
		update.Status.Phase, update.Status.Reason = phase, reason
		require.NoError(t, f.management.Status().Update(t.Context(), update))
		f.noted()
		return f.again
	}
	for phase, reason := range map[refitv1.Phase]string{refitv1.PhaseSucceeded: "", refitv1.PhaseFailed: "", refitv1.PhaseWaiting: refitv1.ReasonWindow} {
		require.GreaterOrEqual(t, after(phase, reason), resync.Every*3/4, phase)
		require.LessOrEqual(t, f.again, resync.Every)
	}
	require.LessOrEqual(t, after(refitv1.PhaseWaiting, refitv1.ReasonLease), notesEvery)
	require.LessOrEqual(t, after(refitv1.PhaseApplying, ""), notesEvery)
	require.Greater(t, after(refitv1.PhaseSucceeded, ""), notesEvery)
	f.seize("node-w2", "node-maintenance")
	f.noted()
	require.LessOrEqual(t, f.again, notesEvery, "it is to be seen that it is released")
}

// TestWhoFindsANodeHeldWakesNotes: the leases themselves tell nobody.
func TestWhoFindsANodeHeldWakesNotes(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	of := func(phase refitv1.Phase, reason string) *refitv1.MachineUpdate {
		mu := managementtest.MachineUpdate(machine(key.Name))
		mu.Status.Phase, mu.Status.Reason = phase, reason
		return mu
	}
	window, applies := of(refitv1.PhaseWaiting, refitv1.ReasonWindow), of(refitv1.PhaseApplying, "")
	updateChanged(t.Context(), event.UpdateEvent{ObjectOld: window, ObjectNew: window}, queue)
	updateChanged(t.Context(), event.UpdateEvent{ObjectOld: window, ObjectNew: applies}, queue) // in a minute
	require.Zero(t, queue.Len())
	updateChanged(t.Context(), event.UpdateEvent{ObjectOld: applies, ObjectNew: of(refitv1.PhaseWaiting, refitv1.ReasonLease)}, queue)
	require.Equal(t, 1, queue.Len())
	req, _ := queue.Get()
	require.Equal(t, "fleet/prod", req.String())
}

func TestWhatWakesNotes(t *testing.T) {
	before, after := machine("m1"), machine("m1")
	require.False(t, holdChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
	after.Annotations = map[string]string{refitv1.HoldAnnotation: "true"}
	require.True(t, holdChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
	require.False(t, holdChanged.Delete(event.DeleteEvent{Object: before}))
	require.True(t, holdChanged.Delete(event.DeleteEvent{Object: after}))
}

// asked counts for how many Clusters somebody has wanted to reach the workload cluster.
type asked struct {
	Workloads
	times int
}

func (a *asked) Get(ctx context.Context, cluster client.ObjectKey) (*workload.Cluster, error) {
	a.times++
	return a.Workloads.Get(ctx, cluster)
}

// TestAClusterThatIsNotThereYetIsNotAsked, whose Secrets would be looked for each minute.
func TestAClusterThatIsNotThereYetIsNotAsked(t *testing.T) {
	f := newFleet(t)
	f.seize("node-m1", "NodeHealthCheck-nhc")
	workloads := &asked{Workloads: f.notes.Workloads}
	f.notes.Workloads = workloads
	provisioned := func(is bool) {
		var cluster clusterv1.Cluster
		require.NoError(t, f.management.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "prod"}, &cluster))
		cluster.Status.Initialization.InfrastructureProvisioned = &is
		require.NoError(t, f.management.Update(t.Context(), &cluster))
	}
	provisioned(false)
	require.Empty(t, f.noted()[0])
	require.Zero(t, workloads.times)
	provisioned(true)
	require.NotEmpty(t, f.noted()[0])
	require.Equal(t, 1, workloads.times)
}
