package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// testingT is a test or a property.
type testingT interface {
	require.TestingT
	Helper()
}

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// start is when the tests are.
var start = time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC)

// workload is a workload cluster. Its Leases are kept as the API server keeps them, with one resourceVersion for all, which
// the fake client does not do; the rest is in the fake client.
type workload struct {
	client.WithWatch

	mu       sync.Mutex
	revision int64
	leases   map[types.NamespacedName][]byte
	written  int

	// namespaced makes the namespace of the leases necessary.
	namespaced bool
	// noMaintenances makes the cluster one without the node-maintenance-operator.
	noMaintenances bool
	// fail answers instead of the cluster if it returns an error.
	fail func(verb string, obj client.Object) error
	// mute makes what is written, and does not answer.
	mute bool
}

func newWorkload() *workload {
	scheme := clientgoscheme.Scheme
	base := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper()).WithObjects(testNode()).Build()
	return &workload{WithWatch: base, revision: 100, leases: map[types.NamespacedName][]byte{}}
}

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, meta.RESTScopeNamespace)
	m.Add(nodeMaintenanceGVK, meta.RESTScopeRoot)
	return m
}

// client returns a client of the cluster, whose API server's clock is now.
func (w *workload) client(now func() time.Time) client.Client {
	return interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := w.failing(ctx, "get", obj); err != nil {
				return err
			}
			if lease, ok := obj.(*coordinationv1.Lease); ok {
				return w.get(key, lease)
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if l, ok := list.(*coordinationv1.LeaseList); ok {
				return w.list(l)
			}
			if err := w.failing(ctx, "list", nil); err != nil {
				return err
			}
			if w.noMaintenances {
				return &meta.NoKindMatchError{GroupKind: nodeMaintenanceGVK.GroupKind()}
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			lease, ok := obj.(*coordinationv1.Lease)
			if !ok {
				return c.Create(ctx, obj, opts...)
			}
			if w.namespaced {
				if err := c.Get(ctx, types.NamespacedName{Name: lease.Namespace}, &corev1.Namespace{}); err != nil {
					return err
				}
			}
			if o := (&client.CreateOptions{}).ApplyOptions(opts); len(o.DryRun) > 0 {
				if err := w.failing(ctx, "dry run", obj); err != nil {
					return err
				}
				lease.CreationTimestamp = metav1.NewTime(now().Truncate(time.Second))
				return nil
			}
			return w.write(ctx, "create", lease)
		},
		Update: func(ctx context.Context, _ client.WithWatch, obj client.Object, _ ...client.UpdateOption) error {
			return w.write(ctx, "update", obj.(*coordinationv1.Lease))
		},
	})
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

func (w *workload) get(key types.NamespacedName, lease *coordinationv1.Lease) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	data, ok := w.leases[key]
	if !ok {
		return apierrors.NewNotFound(leases, key.Name)
	}
	*lease = decode(data)
	return nil
}

func (w *workload) list(list *coordinationv1.LeaseList) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, data := range w.leases {
		list.Items = append(list.Items, decode(data))
	}
	return nil
}

func decode(data []byte) coordinationv1.Lease {
	var lease coordinationv1.Lease
	if err := json.Unmarshal(data, &lease); err != nil {
		panic(err)
	}
	return lease
}

// write is what the API server does with a write.
func (w *workload) write(ctx context.Context, verb string, lease *coordinationv1.Lease) error {
	if err := w.failing(ctx, verb, lease); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(lease)
	if d := lease.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		return apierrors.NewBadRequest("leaseDurationSeconds must be greater than 0")
	}
	data, found := w.leases[key]
	switch {
	case verb == "create" && found:
		return apierrors.NewAlreadyExists(leases, key.Name)
	case verb == "create" && lease.ResourceVersion != "":
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	case verb == "create":
		lease.UID = types.UID(fmt.Sprintf("lease-%d", w.revision))
		lease.CreationTimestamp = metav1.NewTime(start)
	case !found:
		return apierrors.NewNotFound(leases, key.Name)
	default:
		old := decode(data)
		if old.ResourceVersion != lease.ResourceVersion || old.UID != lease.UID {
			return apierrors.NewConflict(leases, key.Name, fmt.Errorf("the object has been modified"))
		}
		text, _ := json.Marshal(lease)
		if next := decode(text); reflect.DeepEqual(old, next) {
			return nil // as the API server, which does not store what does not change
		}
	}
	w.put(lease)
	if w.mute {
		return errAway
	}
	return nil
}

func (w *workload) put(lease *coordinationv1.Lease) {
	w.revision++
	w.written++
	lease.ResourceVersion = strconv.FormatInt(w.revision, 10)
	text, err := json.Marshal(lease)
	if err != nil {
		panic(err)
	}
	w.leases[client.ObjectKeyFromObject(lease)] = text
	*lease = decode(text)
}

// edit does to a lease what others do. A lease that is not there is made.
func (w *workload) edit(key types.NamespacedName, change func(*coordinationv1.Lease)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, UID: types.UID(fmt.Sprintf("foreign-%d", w.revision)),
	}}
	if data, ok := w.leases[key]; ok {
		lease = decode(data)
	}
	change(&lease)
	w.put(&lease)
}

func (w *workload) remove(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.leases, key)
}
