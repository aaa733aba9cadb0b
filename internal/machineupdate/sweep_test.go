package machineupdate

import (
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/drain"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/protection"
)

// TestWhatWasLeftBehindIsSwept has an earlier process leave markers, a cordon and a lease at another Machine of the cluster.
func TestWhatWasLeftBehindIsSwept(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
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
	require.NoError(t, w.workload.Create(ctx, left))

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
