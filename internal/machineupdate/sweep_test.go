package machineupdate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drain"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/internal/workload"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// marked has markers, a cordon and a lease of refit be at another Machine of the cluster, and its node.
func (w *world) marked() (*clusterv1.Machine, *corev1.Node, *coordinationv1.Lease) {
	t, ctx := w.t, w.t.Context()
	other := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: "m2", UID: "uid-2", Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"},
	}}
	other.Spec.ClusterName, other.Status.NodeRef.Name = "c1", "n2"
	require.NoError(t, w.Create(ctx, other))
	n2 := &corev1.Node{}
	require.NoError(t, w.workload.Client.Get(ctx, client.ObjectKey{Name: "n2"}, n2))
	d := &drain.Drainer{Client: w.workload.Client, Rules: w, Clock: w.clock}
	_, err := d.Cordon(ctx, drain.NodeRef{Name: n2.Name, UID: n2.UID}, other.UID)
	require.NoError(t, err)
	p := &protection.Protector{Management: w, Workload: w.workload.Client}
	subject := protection.Machine{ObjectKey: client.ObjectKeyFromObject(other), UID: other.UID}
	require.NoError(t, p.Protect(ctx, subject, protection.Node{Name: n2.Name, UID: n2.UID}))
	left := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: lease.DefaultNamespace, Name: lease.Name("n2")},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(lease.Holder(other.UID))},
	}
	require.NoError(t, w.workload.Client.Create(ctx, left))
	return other, n2, left
}

// TestWhatWasLeftBehindIsSwept has an earlier process leave markers, a cordon and a lease at another Machine of the cluster.
func TestWhatWasLeftBehindIsSwept(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	other, n2, left := w.marked()
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.ask()
	w.reconcile()
	require.NoError(t, w.workload.Client.Get(ctx, client.ObjectKeyFromObject(n2), n2))
	require.False(t, n2.Spec.Unschedulable)
	require.Empty(t, n2.Annotations)
	require.Empty(t, n2.Labels)
	require.NoError(t, w.Get(ctx, client.ObjectKeyFromObject(other), other))
	require.Empty(t, other.Annotations)
	require.NoError(t, w.workload.Client.Get(ctx, client.ObjectKeyFromObject(left), left))
	require.Empty(t, *left.Spec.HolderIdentity)
}

// TestWhatIsUnderWayIsNotSwept has the update of another Machine be under way, and somebody edit the MachineUpdate.
func TestWhatIsUnderWayIsNotSwept(t *testing.T) {
	for name, edit := range map[string]func(*refitv1.MachineUpdate){
		"it is as it was":       func(*refitv1.MachineUpdate) {},
		"it has no label":       func(mu *refitv1.MachineUpdate) { mu.Labels = nil },
		"it says other cluster": func(mu *refitv1.MachineUpdate) { mu.Labels[clusterv1.ClusterNameLabel] = "c2" },
		"it names no owner":     func(mu *refitv1.MachineUpdate) { mu.OwnerReferences = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ctx := t.Context()
			other, n2, left := w.marked()
			mu := managementtest.MachineUpdate(other, edit)
			mu.UID, mu.ResourceVersion = "update-2", ""
			status := refitv1.MachineUpdateStatus{
				Phase: refitv1.PhaseApplying, Attempts: 1, Admission: &refitv1.Admission{}, Slot: &refitv1.Slot{},
				Node: &refitv1.NodeReference{Name: n2.Name, UID: n2.UID},
			}
			require.NoError(t, w.Create(ctx, mu))
			mu.Status = status
			require.NoError(t, w.Status().Update(ctx, mu))

			w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
			w.ask()
			w.reconcile()
			w.requirePhase(refitv1.PhaseSucceeded)
			require.NoError(t, w.workload.Client.Get(ctx, client.ObjectKeyFromObject(n2), n2))
			require.True(t, n2.Spec.Unschedulable)
			require.NoError(t, w.Get(ctx, client.ObjectKeyFromObject(other), other))
			require.Contains(t, other.Annotations, protection.AddedAnnotation)
			require.NoError(t, w.workload.Client.Get(ctx, client.ObjectKeyFromObject(left), left))
			require.Equal(t, lease.Holder(other.UID), *left.Spec.HolderIdentity)
		})
	}
}

// onLeases has the workload cluster answer by an error, or by itself, when its leases are listed.
func (w *world) onLeases(answer func() error) {
	w.workload.Client = workloadtest.Before(w.workload.Client, func(_ string, obj runtime.Object) error {
		if _, ok := obj.(*coordinationv1.LeaseList); ok {
			return answer()
		}
		return nil
	})
}

var errSilent = errors.New("i/o timeout")

// TestAClusterThatWasNotSweptIsNotAskedAtOnce: each question may take until the client gives up, and there are many updates.
func TestAClusterThatWasNotSweptIsNotAskedAtOnce(t *testing.T) {
	w := newWorld(t)
	asked, down := 0, true
	w.onLeases(func() error {
		if asked++; down {
			return errSilent
		}
		return nil
	})
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.ask()
	for range 5 {
		w.reconcile()
		w.requireWaiting(refitv1.ReasonWorkload, "i/o timeout")
		w.clock.Step(sweepAgain/5 - time.Millisecond)
	}
	require.Equal(t, 1, asked)
	w.clock.Step(time.Second)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWorkload, "i/o timeout")
	require.Equal(t, 2, asked)

	down = false
	w.clock.SetTime(w.clock.Now().Add(-time.Hour)) // it was put back
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
}

// TestWhoWaitsForASweep has several updates come to a cluster that does not answer.
func TestWhoWaitsForASweep(t *testing.T) {
	w := newWorld(t)
	w.ask()
	asked, answer := make(chan struct{}), make(chan error)
	w.onLeases(func() error {
		asked <- struct{}{}
		return <-answer
	})
	mu := w.update()
	sweep := func(ctx context.Context) error {
		u := &update{Reconciler: w.reconciler, mu: mu, regarding: w.currentMachine()}
		u.occupied.cluster = &workload.Cluster{Client: w.workload.Client}
		return u.sweep(ctx)
	}
	first := make(chan error, 1)
	go func() { first <- sweep(t.Context()) }()
	<-asked
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, sweep(gone), context.Canceled, "who waits can give up")
	answer <- errSilent
	require.ErrorIs(t, <-first, errSilent)

	w.clock.Step(sweepAgain)
	go func() { first <- sweep(t.Context()) }()
	<-asked
	require.ErrorIs(t, sweep(t.Context()), errSilent, "one who asks again is enough")
	answer <- nil
	require.NoError(t, <-first)
	require.NoError(t, sweep(t.Context()), "it is done once")

	stopping, cancel := context.WithCancel(t.Context())
	w.reconciler.sweeps.Clear()
	go func() { first <- sweep(stopping) }()
	<-asked
	cancel()
	answer <- errSilent
	require.ErrorIs(t, <-first, errSilent)
	go func() { first <- sweep(t.Context()) }()
	<-asked // what ended with its process says nothing about the cluster
	answer <- nil
	require.NoError(t, <-first)
}

// TestOneMachineIsLeftAsItIs has another Machine of the cluster be such that nothing can be swept there, or that there is no Node to sweep.
func TestOneMachineIsLeftAsItIs(t *testing.T) {
	for name, tc := range map[string]struct {
		added, node string
		event       bool
	}{
		"its annotation is nonsense": {added: "x", node: "n2", event: true},
		"its Node is gone":           {added: "uid-2:cluster.x-k8s.io/skip-remediation", node: "gone"},
		"it has no Node":             {added: "uid-2:cluster.x-k8s.io/skip-remediation"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			other := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: "m2", UID: "uid-2", Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"},
				Annotations: map[string]string{protection.AddedAnnotation: tc.added, clusterv1.MachineSkipRemediationAnnotation: "refit"},
			}}
			other.Spec.ClusterName, other.Status.NodeRef.Name = "c1", tc.node
			require.NoError(t, w.Create(t.Context(), other))
			w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
			w.ask()
			w.reconcile()
			w.requirePhase(refitv1.PhaseSucceeded)
			require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(other), other))
			if tc.event {
				require.Contains(t, <-w.events.Events, "InPlaceUpdateLeftovers")
			} else {
				require.Empty(t, other.Annotations)
			}
		})
	}
}
