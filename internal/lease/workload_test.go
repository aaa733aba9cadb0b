package lease

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-refit/refit/internal/managementtest"
)

// testingT is a test or a property.
type testingT interface {
	require.TestingT
	Context() context.Context
	Helper()
}

// start is when the tests are.
var start = managementtest.Start

// workload is a workload cluster as refit meets it: one that fails when a test wants it to, and that counts what is written.
// newWorkload makes it of a fake, or with the build tag e2e of a real API server.
type workload struct {
	// WithWatch is the cluster itself, for what others do there. It never fails.
	client.WithWatch
	t testingT
	// time is what the cluster's own clock says.
	time func() time.Time
	// withoutMaintenances makes the cluster one without the node-maintenance-operator.
	withoutMaintenances func()

	mu sync.Mutex
	// written is how many writes of Leases have changed anything.
	written int
	// fail answers instead of the cluster if it returns an error.
	fail func(verb string, obj client.Object) error
	// mute makes what is written, and does not answer.
	mute bool
}

// client returns a client of the cluster, whose API server's clock is now.
func (w *workload) client(now func() time.Time) client.Client {
	return interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := w.failing(ctx, "get", obj); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*coordinationv1.LeaseList); !ok {
				if err := w.failing(ctx, "list", nil); err != nil {
					return err
				}
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			lease, ok := obj.(*coordinationv1.Lease)
			if !ok {
				return c.Create(ctx, obj, opts...)
			}
			create := func() error { return c.Create(ctx, lease, opts...) }
			if o := (&client.CreateOptions{}).ApplyOptions(opts); len(o.DryRun) == 0 {
				return w.write(ctx, "create", lease, create)
			}
			if err := w.failing(ctx, "dry run", obj); err != nil {
				return err
			}
			err := create()
			w.set(&lease.CreationTimestamp, now())
			return err
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return w.write(ctx, "update", obj.(*coordinationv1.Lease), func() error { return c.Update(ctx, obj, opts...) })
		},
	})
}

// set puts a time that the cluster has just told to what it would be if its clock were now.
func (w *workload) set(told *metav1.Time, now time.Time) {
	if !told.IsZero() {
		ahead := now.Sub(w.time().Truncate(time.Second))
		*told = metav1.NewTime(told.Add(ahead).Truncate(time.Second))
	}
}

func (w *workload) failing(ctx context.Context, verb string, obj client.Object) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.fail != nil {
		return w.fail(verb, obj)
	}
	return nil
}

func (w *workload) write(ctx context.Context, verb string, lease *coordinationv1.Lease, do func() error) error {
	if err := w.failing(ctx, verb, lease); err != nil {
		return err
	}
	before := lease.ResourceVersion
	if err := do(); err != nil || lease.ResourceVersion == before {
		return err // the API server does not store what does not change
	}
	w.count()
	if w.mute {
		return errAway
	}
	return nil
}

func (w *workload) count() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written++
}

// get returns a lease, or nil if there is none.
func (w *workload) get(key types.NamespacedName) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{}
	err := w.Get(w.t.Context(), key, lease)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w.t, err)
	return lease
}

// edit does to a lease what others do. A lease that is not there is made. One that gets a deletionTimestamp is deleted, with a
// finalizer that keeps it.
func (w *workload) edit(key types.NamespacedName, change func(*coordinationv1.Lease)) {
	ctx, lease := w.t.Context(), w.get(key)
	missing := lease == nil
	if missing {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	}
	change(lease)
	deleting := lease.DeletionTimestamp != nil
	if deleting {
		lease.DeletionTimestamp, lease.Finalizers = nil, []string{"example.com/keep"}
	}
	if missing {
		require.NoError(w.t, w.Create(ctx, lease))
	} else {
		require.NoError(w.t, w.Update(ctx, lease))
	}
	if deleting {
		require.NoError(w.t, w.Delete(ctx, lease))
	}
	w.count()
}

func (w *workload) remove(key types.NamespacedName) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	require.NoError(w.t, client.IgnoreNotFound(w.Delete(w.t.Context(), lease)))
}

// nodeUID returns the uid of the cluster's node.
func (w *workload) nodeUID() types.UID {
	n := testNode()
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(n), n))
	return n.UID
}
