package lease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/managementtest"
)

// world is a workload cluster with one node, and refit.
type world struct {
	*workload
	clock   *clocktesting.FakeClock
	server  func() time.Time // the API server's clock
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster
	locker  *Locker
	req     Request
}

var nodeKey = types.NamespacedName{Namespace: DefaultNamespace, Name: "node-w1"}

func testNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1", UID: "node-uid"}}
}

func newWorld(t *testing.T) *world {
	w := &world{workload: newWorkload(t), clock: clocktesting.NewFakeClock(start)}
	w.server = func() time.Time { return w.clock.Now() }
	w.machine, w.cluster = testMachine("machine-uid"), managementtest.Cluster("lab", "c1", nil)
	w.locker = w.another("refit-0")
	w.req = Request{Operation: "update d1", Step: "drain", Facts: w.facts}
	return w
}

func testMachine(uid types.UID) *clusterv1.Machine {
	return managementtest.Machine("lab", "m1", "c1", func(m *clusterv1.Machine) { m.UID, m.Status.NodeRef.Name = uid, "w1" })
}

func (w *world) facts(context.Context) (Facts, error) { return Facts{w.machine, w.cluster}, nil }

// another returns another instance of refit, or the same after a restart.
func (w *world) another(instance string) *Locker {
	return &Locker{
		Client: w.client(func() time.Time { return w.server() }), Clock: w.clock, Observer: NewObserver(10), Instance: instance,
	}
}

func (w *world) acquire(ctx context.Context) *Held {
	h, err := w.locker.Acquire(ctx, w.req)
	require.NoError(w.t, err)
	return h
}

// refused is an acquisition that must end with a HeldError and leave the lease alone.
func (w *world) refused(ctx context.Context) *HeldError {
	before := w.written
	h, err := w.locker.Acquire(ctx, w.req)
	require.Nil(w.t, h)
	var held *HeldError
	require.ErrorAs(w.t, err, &held)
	require.Equal(w.t, before, w.written, "the lease is untouched")
	require.GreaterOrEqual(w.t, held.RetryAfter, retryAtLeast)
	require.LessOrEqual(w.t, held.RetryAfter, retryAtMost)
	return held
}

// waits is the same for who does not want to know why.
func (w *world) waits(ctx context.Context) { _ = w.refused(ctx) }

func (w *world) lease() *coordinationv1.Lease {
	lease := w.get(nodeKey)
	require.NotNil(w.t, lease)
	return lease
}

// foreign is a lease of somebody else, renewed when given by the server's clock.
func (w *world) foreign(holder string, renewed time.Time, seconds int32) {
	w.edit(nodeKey, func(l *coordinationv1.Lease) {
		l.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, LeaseTransitions: ptr.To[int32](3),
			AcquireTime: ptr.To(metav1.NewMicroTime(renewed)), RenewTime: ptr.To(metav1.NewMicroTime(renewed)),
		}
	})
}

// valid is medik8s' rule: whether another may not take the lease.
func valid(lease *coordinationv1.Lease, now time.Time) bool {
	s := lease.Spec
	if s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return false
	}
	end := s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second)
	return !s.RenewTime.After(now) && !end.Before(now)
}

func nodeMaintenance(node string) *unstructured.Unstructured {
	nm := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nodeName": node, "reason": "disk swap"}}}
	nm.SetGroupVersionKind(NodeMaintenanceGVK)
	nm.SetName("nm-" + node)
	nm.SetCreationTimestamp(metav1.NewTime(start.Add(-time.Hour)))
	return nm
}
