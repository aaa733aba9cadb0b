//go:build !e2e

package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"time"

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

// raceRounds is how often two want the node at once.
const raceRounds = 1000

// newWorkload returns a cluster that exists in memory only, and whose time stands still.
func newWorkload(t testingT) *workload {
	base := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithRESTMapper(mapper()).WithObjects(
		testNode(), namespace(DefaultNamespace), namespace(maintenanceKey.Namespace)).Build()
	s := &leaseStore{revision: 100, leases: map[types.NamespacedName][]byte{}}
	return &workload{
		WithWatch: interceptor.NewClient(base, s.funcs()), t: t, time: func() time.Time { return start },
		withoutMaintenances: func() { s.noMaintenances = true },
	}
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, meta.RESTScopeNamespace)
	m.Add(NodeMaintenanceGVK, meta.RESTScopeRoot)
	return m
}

// leaseStore keeps Leases as the API server does: with one resourceVersion for all, which the fake client does not have.
type leaseStore struct {
	noMaintenances bool

	mu       sync.Mutex
	revision int64
	leases   map[types.NamespacedName][]byte
}

// funcs are for a fake client, which has all the rest.
func (s *leaseStore) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if lease, ok := obj.(*coordinationv1.Lease); ok {
				return s.get(key, lease)
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if l, ok := list.(*coordinationv1.LeaseList); ok {
				return s.list(l)
			}
			if s.noMaintenances {
				return &meta.NoKindMatchError{GroupKind: NodeMaintenanceGVK.GroupKind()}
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			lease, ok := obj.(*coordinationv1.Lease)
			if !ok {
				return c.Create(ctx, obj, opts...)
			}
			if err := c.Get(ctx, types.NamespacedName{Name: lease.Namespace}, &corev1.Namespace{}); err != nil {
				return err
			}
			if o := (&client.CreateOptions{}).ApplyOptions(opts); len(o.DryRun) > 0 {
				lease.CreationTimestamp = metav1.NewTime(start)
				return nil
			}
			return s.create(lease)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if lease, ok := obj.(*coordinationv1.Lease); ok {
				return s.update(lease)
			}
			return c.Update(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if lease, ok := obj.(*coordinationv1.Lease); ok {
				return s.delete(client.ObjectKeyFromObject(lease))
			}
			return c.Delete(ctx, obj, opts...)
		},
	}
}

func (s *leaseStore) get(key types.NamespacedName, lease *coordinationv1.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.leases[key]
	if !ok {
		return apierrors.NewNotFound(leases, key.Name)
	}
	*lease = decode(data)
	return nil
}

func (s *leaseStore) list(list *coordinationv1.LeaseList) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, data := range s.leases {
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

func (s *leaseStore) create(lease *coordinationv1.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.leases[client.ObjectKeyFromObject(lease)]
	switch {
	case found:
		return apierrors.NewAlreadyExists(leases, lease.Name)
	case lease.ResourceVersion != "":
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	lease.UID = types.UID(fmt.Sprintf("lease-%d", s.revision))
	lease.CreationTimestamp = metav1.NewTime(start)
	return s.put(lease)
}

func (s *leaseStore) update(lease *coordinationv1.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, found := s.leases[client.ObjectKeyFromObject(lease)]
	if !found {
		return apierrors.NewNotFound(leases, lease.Name)
	}
	old := decode(data)
	if old.ResourceVersion != lease.ResourceVersion || old.UID != lease.UID {
		return apierrors.NewConflict(leases, lease.Name, fmt.Errorf("the object has been modified"))
	}
	text, _ := json.Marshal(lease)
	if next := decode(text); reflect.DeepEqual(old, next) {
		return nil // as the API server, which does not store what does not change
	}
	return s.put(lease)
}

func (s *leaseStore) delete(key types.NamespacedName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, found := s.leases[key]
	if !found {
		return apierrors.NewNotFound(leases, key.Name)
	}
	if lease := decode(data); len(lease.Finalizers) > 0 {
		at := metav1.NewTime(start)
		lease.DeletionTimestamp = &at
		return s.put(&lease)
	}
	delete(s.leases, key)
	return nil
}

// put stores a lease that is valid.
func (s *leaseStore) put(lease *coordinationv1.Lease) error {
	if d := lease.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		return apierrors.NewBadRequest("leaseDurationSeconds must be greater than 0")
	}
	s.revision++
	lease.ResourceVersion = strconv.FormatInt(s.revision, 10)
	text, err := json.Marshal(lease)
	if err != nil {
		panic(err)
	}
	s.leases[client.ObjectKeyFromObject(lease)] = text
	*lease = decode(text)
	return nil
}
