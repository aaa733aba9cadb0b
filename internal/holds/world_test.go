package holds

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/admin"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/internal/workload"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

var (
	start   = managementtest.Start
	errAway = errors.New("connection refused")
	key     = client.ObjectKey{Namespace: "fleet", Name: "m1"}
)

// world is a management cluster with the Machine m1 of the cluster prod, and the workload cluster with its node.
type world struct {
	t          *testing.T
	management client.WithWatch
	workload   *workloadtest.Cluster
	clock      *clocktesting.FakeClock
	// onPatch is called before a patch in the management cluster.
	onPatch func()
}

func newWorld(t *testing.T, change ...func(*clusterv1.Machine)) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakeClock(start)}
	cluster := managementtest.Cluster(key.Namespace, "prod", nil)
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	fleet := managementtest.NewBuilder(managementtest.NewScheme(controlplanev1.AddToScheme)).WithObjects(
		managementtest.Machine(key.Namespace, key.Name, "prod", change...), cluster).Build()
	w.management = workloadtest.Before(fleet, func(verb string, _ runtime.Object) error {
		if f := w.onPatch; f != nil && verb == "patch" {
			w.onPatch = nil
			f()
		}
		return nil
	})
	w.workload = workloadtest.New(w.clock, workloadtest.Node("node-m1"))
	return w
}

func machine(name string) *clusterv1.Machine {
	return managementtest.Machine(key.Namespace, name, "prod")
}

// Get reaches the workload cluster.
func (w *world) Get(ctx context.Context, cluster client.ObjectKey) (*workload.Cluster, error) {
	require.Equal(w.t, "fleet/prod", cluster.String())
	return w.workload.Get(ctx, cluster)
}

// hold does what refit hold does.
func (w *world) hold(until time.Time) {
	w.t.Helper()
	h := &admin.Holder{
		Client: w.management, Clock: w.clock, Out: io.Discard, Admin: "alice",
		Nodes: func(context.Context, types.NamespacedName) (admin.Nodes, error) {
			return struct {
				*lease.Locker
				*protection.HeldNodes
			}{&lease.Locker{Client: w.workload.Client, Clock: w.clock, Instance: "cli"}, &protection.HeldNodes{Client: w.workload.Client}}, nil
		},
	}
	require.NoError(w.t, h.Hold(w.t.Context(), w.machine(), admin.HoldOptions{Reason: "disk swap", Until: until}))
}

func (w *world) machine() *clusterv1.Machine {
	w.t.Helper()
	m := &clusterv1.Machine{}
	require.NoError(w.t, w.management.Get(w.t.Context(), key, m))
	return m
}

func (w *world) node() *corev1.Node {
	w.t.Helper()
	n := &corev1.Node{}
	require.NoError(w.t, w.workload.Client.Get(w.t.Context(), client.ObjectKey{Name: "node-m1"}, n))
	return n
}

// holder is who holds the lease of the node.
func (w *world) holder() string {
	w.t.Helper()
	var l coordinationv1.Lease
	require.NoError(w.t, w.workload.Client.Get(w.t.Context(), client.ObjectKey{Namespace: lease.DefaultNamespace, Name: lease.Name("node-m1")}, &l))
	return *l.Spec.HolderIdentity
}

func (w *world) reconcile() ctrl.Result {
	w.t.Helper()
	s := &Sweeper{Client: w.management, Live: w.management, Workloads: w, Clock: w.clock}
	result, err := s.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: key})
	require.NoError(w.t, err)
	return result
}

// requireHeld requires all that a hold puts anywhere.
func (w *world) requireHeld() {
	w.t.Helper()
	require.True(w.t, protection.HasHold(w.machine()))
	require.Contains(w.t, w.machine().Annotations, clusterv1.MachineSkipRemediationAnnotation)
	require.True(w.t, protection.HasHold(w.node()))
	require.Len(w.t, w.node().Labels, 1)
	require.Equal(w.t, "admin/alice", w.holder())
}

// requireFree requires that nothing of a hold is left.
func (w *world) requireFree() {
	w.t.Helper()
	require.Empty(w.t, w.machine().Annotations)
	require.Empty(w.t, w.node().Annotations)
	require.Empty(w.t, w.node().Labels)
	require.Empty(w.t, w.holder())
}
