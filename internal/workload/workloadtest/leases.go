package workloadtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// LeaseNamespace is where medik8s keeps its leases of nodes.
const LeaseNamespace = "medik8s-leases"

var leases = coordinationv1.Resource("leases")

// leaseStore keeps Leases as the API server does: in a Namespace that must be there, with one resourceVersion for all, and with the time of
// the API server's clock. The fake client does none of it.
type leaseStore struct {
	now clock.PassiveClock

	mu       sync.Mutex
	revision int64
	leases   map[types.NamespacedName][]byte
}

// intercept is for a fake client, which has all the rest.
func (s *leaseStore) intercept() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if lease, ok := obj.(*coordinationv1.Lease); ok {
				return s.get(key, lease)
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if l, ok := list.(*coordinationv1.LeaseList); ok {
				return s.list(l, (&client.ListOptions{}).ApplyOptions(opts).Namespace)
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
				lease.CreationTimestamp = metav1.NewTime(s.now.Now())
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
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, ok := obj.(*coordinationv1.Lease); ok {
				return errors.New("the fake patches no Leases")
			}
			return c.Patch(ctx, obj, patch, opts...)
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

func (s *leaseStore) list(list *coordinationv1.LeaseList, namespace string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list.Items = nil
	for key, data := range s.leases {
		if namespace == "" || key.Namespace == namespace {
			list.Items = append(list.Items, decode(data))
		}
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
	lease.CreationTimestamp = metav1.NewTime(s.now.Now())
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
		return apierrors.NewConflict(leases, lease.Name, errors.New("the object has been modified"))
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
		at := metav1.NewTime(s.now.Now())
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
