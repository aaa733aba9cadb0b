// Package snapshot keeps what was read of all objects of a kind, on every replica, so that hooks are answered from memory.
package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Kind says how objects of a kind are read.
type Kind[O client.Object, T Named] struct {
	// Name is that of the kind, in the plural, for messages.
	Name string
	// New returns an empty object, and List an empty list.
	New  func() O
	List func() client.ObjectList
	// Read returns what an object says. It is not to keep the object.
	Read func(O) T
}

// Named is what was read of an object.
type Named interface {
	// GetName returns the name of the object.
	GetName() string
}

// Reader keeps what was read last.
type Reader[O client.Object, T Named] struct {
	client client.Reader
	kind   Kind[O, T]

	mu sync.Mutex // of writers
	// current is by namespace, in the order of the names. What is stored does not change.
	current atomic.Pointer[map[string][]T]
}

// New returns a Reader that reads from a cache.
func New[O client.Object, T Named](cached client.Reader, kind Kind[O, T]) *Reader[O, T] {
	return &Reader[O, T]{client: cached, kind: kind}
}

// SetupWithManager has the manager keep the Reader up to date, on every replica. controllerName is unique in the manager.
func (r *Reader[O, T]) SetupWithManager(mgr ctrl.Manager, controllerName string) error {
	if err := mgr.Add(everywhere(r.Prime)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named(controllerName).
		For(r.kind.New()).
		WithEventFilter(changed).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(r)
}

// changed says whether an object says something else than before. A cache that lists anew, because its watch was gone for too long, shows
// one that was deleted and made anew as one that has changed: both may be of the same generation.
var changed = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
})

// everywhere is a Runnable that does not wait for the leadership.
type everywhere func(context.Context) error

// Start implements manager.Runnable.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

// Prime reads all objects. Before that there is no telling which there are.
func (r *Reader[O, T]) Prime(ctx context.Context) error {
	list := r.kind.List()
	if err := r.client.List(ctx, list); err != nil {
		return fmt.Errorf("list %s: %w", r.kind.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string][]T{}
	if err := meta.EachListItem(list, func(item runtime.Object) error {
		obj, ok := item.(O)
		if !ok {
			return fmt.Errorf("list %s: there is a %T among them", r.kind.Name, item)
		}
		all[obj.GetNamespace()] = append(all[obj.GetNamespace()], r.kind.Read(obj))
		return nil
	}); err != nil {
		return err
	}
	for _, items := range all {
		slices.SortFunc(items, byName)
	}
	r.current.Store(&all)
	return nil
}

func byName[T Named](a, b T) int { return strings.Compare(a.GetName(), b.GetName()) }

// Reconcile reads one object again.
func (r *Reader[O, T]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := r.kind.New()
	err := r.client.Get(ctx, req.NamespacedName, obj)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.current.Load()
	if before == nil {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	all := maps.Clone(*before)
	others := slices.DeleteFunc(slices.Clone(all[req.Namespace]), func(o T) bool { return o.GetName() == req.Name })
	if err == nil {
		others = append(others, r.kind.Read(obj))
	}
	slices.SortFunc(others, byName) // what readers have is left alone
	all[req.Namespace] = others
	r.current.Store(&all)
	return ctrl.Result{}, nil
}

// Ready returns an error until the objects were read.
func (r *Reader[O, T]) Ready() error {
	if r.current.Load() == nil {
		return fmt.Errorf("the %s have not been read yet", r.kind.Name)
	}
	return nil
}

// All returns what was read, by namespace, in the order of the names; nothing before it was. It is shared and is not to be changed.
func (r *Reader[O, T]) All() map[string][]T {
	if current := r.current.Load(); current != nil {
		return *current
	}
	return nil
}

// In returns what was read of the objects of a namespace, in the order of their names, or an error until they were read. It is
// shared and is not to be changed.
func (r *Reader[O, T]) In(namespace string) ([]T, error) {
	current := r.current.Load()
	if current == nil {
		return nil, r.Ready()
	}
	return (*current)[namespace], nil
}
