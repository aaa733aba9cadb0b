package lease

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestErrorsAreNotFree(t *testing.T) {
	for name, fails := range map[string]func(verb string, obj client.Object) bool{
		"the lease can't be read": func(v string, o client.Object) bool { _, ok := o.(*coordinationv1.Lease); return v == "get" && ok },
		"the Node can't be read":  func(v string, o client.Object) bool { _, ok := o.(*corev1.Node); return v == "get" && ok },
		"kured's DaemonSet can't be read": func(v string, o client.Object) bool {
			_, ok := o.(*metav1.PartialObjectMetadata)
			return v == "get" && ok
		},
		"the NodeMaintenances can't be listed": func(v string, _ client.Object) bool { return v == "list" },
		"the API server's time can't be told":  func(v string, _ client.Object) bool { return v == "dry run" },
		"the lease can't be written":           func(v string, _ client.Object) bool { return v == "create" },
		"all is away":                          func(string, client.Object) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fail = func(verb string, obj client.Object) error {
				if fails(verb, obj) {
					return apierrors.NewInternalError(errors.New("away"))
				}
				return nil
			}
			h, err := w.locker.Acquire(t.Context(), w.req)
			require.Nil(t, h)
			require.Error(t, err)
			var held *HeldError
			require.NotErrorAs(t, err, &held, "nobody is to blame")
			require.Zero(t, w.written)
		})
	}
	_, err := (&Locker{}).Acquire(t.Context(), Request{})
	require.Error(t, err)
}

func TestTheResourceVersionMustBeANumber(t *testing.T) {
	w := newWorld(t)
	w.locker.Client = letters{w.locker.Client}
	_, err := w.locker.Acquire(t.Context(), w.req)
	require.ErrorContains(t, err, "can't fence")
	require.Empty(t, *w.lease().Spec.HolderIdentity)
}

// letters is a server whose versions are no numbers when something is made.
type letters struct{ client.Client }

func (c letters) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	err := c.Client.Create(ctx, obj, opts...)
	if obj.GetResourceVersion() != "" {
		obj.SetResourceVersion("abc")
	}
	return err
}

func TestTheNamespaceIsMade(t *testing.T) {
	w := newWorld(t)
	w.locker.Namespace = "locks"
	w.acquire(t.Context())
	require.NoError(t, w.Get(t.Context(), types.NamespacedName{Name: "locks"}, &corev1.Namespace{}))
	require.NotNil(t, w.get(types.NamespacedName{Namespace: "locks", Name: "node-w1"}))
}

func TestUntilWhenALeaseIsKept(t *testing.T) {
	w := newWorld(t)
	until := func() time.Time {
		at, err := w.locker.KeptUntil(t.Context(), "w1", "machine-uid")
		require.NoError(t, err)
		return at
	}
	require.Zero(t, until(), "there is none")
	h := w.acquire(t.Context())
	require.WithinDuration(t, w.clock.Now().Add(WorkerDuration), until(), time.Millisecond)
	w.clock.Step(time.Minute)
	require.WithinDuration(t, w.clock.Now().Add(WorkerDuration-time.Minute), until(), time.Millisecond, "nobody has renewed it")
	require.NoError(t, h.Renew(t.Context()))
	require.WithinDuration(t, w.clock.Now().Add(WorkerDuration), until(), time.Millisecond)
	require.NoError(t, h.Release(t.Context()))
	require.Zero(t, until(), "it was released")
	w.foreign("admin/ann", start, 60)
	require.Zero(t, until(), "it is another's")
	w.fail = away
	_, err := w.locker.KeptUntil(t.Context(), "w1", "machine-uid")
	require.ErrorIs(t, err, errAway)
}

func TestSweep(t *testing.T) {
	w := newWorld(t)
	for node, holder := range map[string]string{"w1": "refit/gone", "w2": "refit/working", "w3": "refit/unknown", "w4": "admin/ann", "w5": ""} {
		key := types.NamespacedName{Namespace: DefaultNamespace, Name: Name(node)}
		w.edit(key, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &holder })
	}
	swept, err := w.locker.Sweep(t.Context(), func(machine types.UID) bool { return machine == "gone" })
	require.NoError(t, err)
	require.Equal(t, []string{"node-w1"}, swept.Released)
	require.Empty(t, *w.lease().Spec.HolderIdentity)
	require.Equal(t, 6, w.written)

	w.edit(nodeKey, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("refit/gone") })
	w.fail = func(string, client.Object) error {
		return apierrors.NewConflict(coordinationv1.Resource("leases"), "node-w1", errors.New("taken"))
	}
	swept, err = w.locker.Sweep(t.Context(), func(types.UID) bool { return true })
	require.NoError(t, err, "somebody is at it")
	require.Empty(t, swept.Released)
	require.False(t, swept.Absent("w5"), "a lease that is nobody's is there all the same")
	require.True(t, swept.Absent("w6"))
	w.fail = func(string, client.Object) error { return errors.New("away") }
	_, err = w.locker.Sweep(t.Context(), func(types.UID) bool { return true })
	require.ErrorContains(t, err, "node-w1")
	require.False(t, Swept{}.Absent("w6"), "nothing is known without a sweep")
}
