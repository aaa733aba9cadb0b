package policykind

import (
	"context"
	"errors"
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

// Kind says how policies of a kind are read.
type Kind[O client.Object, T Policy] struct {
	// Name is that of the kind, and Plural that of many, for messages.
	Name, Plural string
	// New returns an empty object, and List an empty list.
	New  func() O
	List func() client.ObjectList
	// Read returns what an object says. It is not to keep the object. It is not called twice at once.
	Read func(context.Context, O) T
	// Again returns when an object is to be read again that has not changed; 0 is never. Nil is never for all.
	Again func(O) time.Duration
	// Annotated has an object read again when its annotations change.
	Annotated bool
	// Same reports whether what was read of the same generation of an object says the same. Nil: it does.
	Same func(before, after T) bool
}

// Reader keeps what was read last.
type Reader[O client.Object, T Policy] struct {
	client client.Reader
	kind   Kind[O, T]

	onEdit []func(namespace string, versions []T)

	mu      sync.Mutex // of writers
	current atomic.Pointer[snapshot[T]]
}

// snapshot is what was read of all policies. What was found in it is kept for as long as it is current.
type snapshot[T Policy] struct {
	byNamespace map[string][]T // in the order of the names
	ofCluster   sync.Map       // types.NamespacedName → clusterPolicies[T]
}

// NewReader returns a Reader that reads from a cache.
func NewReader[O client.Object, T Policy](cached client.Reader, kind Kind[O, T]) *Reader[O, T] {
	return &Reader[O, T]{client: cached, kind: kind}
}

// OnChange has f called when a policy of a namespace says something else, and whoever asks now is answered by that. It is for the time before
// the manager starts, and f is not to block.
func (r *Reader[O, T]) OnChange(f func(namespace string)) {
	r.OnEdit(func(namespace string, _ []T) { f(namespace) })
}

// OnEdit has f called like OnChange, with the policy as it was and as it is now, of which either may be missing.
func (r *Reader[O, T]) OnEdit(f func(namespace string, versions []T)) { r.onEdit = append(r.onEdit, f) }

// SetupWithManager has the manager keep the Reader up to date, on every replica.
func (r *Reader[O, T]) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(everywhere(r.Prime)); err != nil {
		return err
	}
	filter := changed
	if r.kind.Annotated {
		filter = predicate.Or(changed, predicate.AnnotationChangedPredicate{})
	}
	return ctrl.NewControllerManagedBy(mgr).Named(strings.ToLower(r.kind.Name) + "-reader").
		For(r.kind.New()).
		WithEventFilter(filter).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(r)
}

// changed reports whether an object says something else than before. A cache that lists again, because its watch was gone for too long, shows
// one that was deleted and made again as one that has changed: both may be of the same generation.
var changed = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
})

// Edited passes on what somebody else than the writer of its status has changed of an object. Whoever writes a status looks again after a while, and
// must not be woken by that: while a fleet is updated each look finds other numbers, and would write them at once.
var Edited = predicate.Or[client.Object](changed, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})

// everywhere is a Runnable that does not wait for the leadership.
type everywhere func(context.Context) error

// Start implements manager.Runnable.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

// Prime reads all policies. Before that there is no telling which select a Machine.
func (r *Reader[O, T]) Prime(ctx context.Context) error {
	list := r.kind.List()
	if err := r.client.List(ctx, list); err != nil {
		return fmt.Errorf("list %s: %w", r.kind.Plural, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string][]T{}
	if err := r.each(list, func(obj O) {
		all[obj.GetNamespace()] = append(all[obj.GetNamespace()], r.kind.Read(ctx, obj))
	}); err != nil {
		return err
	}
	for _, items := range all {
		slices.SortFunc(items, byName)
	}
	r.current.Store(&snapshot[T]{byNamespace: all})
	return nil
}

// each calls do for the objects of a list.
func (r *Reader[O, T]) each(list client.ObjectList, do func(O)) error {
	return meta.EachListItem(list, func(item runtime.Object) error {
		obj, ok := item.(O)
		if !ok {
			return fmt.Errorf("list %s: there is a %T among them", r.kind.Plural, item)
		}
		do(obj)
		return nil
	})
}

func byName[T Policy](a, b T) int { return strings.Compare(a.Head().Name, b.Head().Name) }

// Reconcile reads one policy again.
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
	all := maps.Clone(before.byNamespace)
	var versions, others []T
	for _, o := range all[req.Namespace] {
		if o.Head().Name == req.Name {
			versions = append(versions, o)
		} else {
			others = append(others, o)
		}
	}
	var result ctrl.Result
	news := true
	if err == nil {
		one := r.kind.Read(ctx, obj)
		news = !slices.ContainsFunc(all[req.Namespace], func(o T) bool { return r.same(o, one) })
		if err := one.Head().Err; err != nil {
			ctrl.LoggerFrom(ctx).Info("The "+r.kind.Name+" can't be read", "reason", err.Error())
		}
		versions, others = append(versions, one), append(others, one)
		if r.kind.Again != nil {
			result.RequeueAfter = r.kind.Again(obj)
		}
	}
	slices.SortFunc(others, byName) // what readers have is left alone
	all[req.Namespace] = others
	r.current.Store(&snapshot[T]{byNamespace: all})
	for _, f := range r.onEdit {
		if news {
			f(req.Namespace, versions)
		}
	}
	return result, nil
}

// same reports whether two say the same of one generation of an object.
func (r *Reader[O, T]) same(before, after T) bool {
	b, a := before.Head(), after.Head()
	return b.Name == a.Name && b.UID == a.UID && b.Generation == a.Generation && (r.kind.Same == nil || r.kind.Same(before, after))
}

// ErrUnread says that policies have not been read yet. Who asks takes it for all that they could say.
var ErrUnread = errors.New("not been read yet")

// Ready returns an error until the policies were read. It is an ErrUnread.
func (r *Reader[O, T]) Ready() error {
	if r.current.Load() == nil {
		return fmt.Errorf("the %s have %w", r.kind.Plural, ErrUnread)
	}
	return nil
}

// All returns what was read, by namespace, in the order of the names; nothing before it was. It is shared and is not to be changed.
func (r *Reader[O, T]) All() map[string][]T {
	if current := r.current.Load(); current != nil {
		return current.byNamespace
	}
	return nil
}

// In returns what was read of the policies of a namespace, in the order of their names, or an error until they were read. It is
// shared and is not to be changed.
func (r *Reader[O, T]) In(namespace string) ([]T, error) {
	current := r.current.Load()
	if current == nil {
		return nil, r.Ready()
	}
	return current.byNamespace[namespace], nil
}

// Of returns what was read of this very version of an object. There is none before it was read.
func (r *Reader[O, T]) Of(obj O) (of T, ok bool) {
	for _, one := range r.All()[obj.GetNamespace()] {
		if h := one.Head(); h.UID == obj.GetUID() && h.Generation == obj.GetGeneration() {
			return one, true
		}
	}
	return of, false
}

// Missing returns the policies of a namespace that the API server has and that are not known here as they are there, by kind and name. A
// Cluster that was moved here came with policies, and must not be taken for one that they say nothing about.
func (r *Reader[O, T]) Missing(ctx context.Context, live client.Reader, namespace string) ([]string, error) {
	list := r.kind.List()
	if err := live.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list %s in namespace %s: %w", r.kind.Plural, namespace, err)
	}
	all, err := r.In(namespace)
	if err != nil {
		return nil, err
	}
	var missing []string
	err = r.each(list, func(there O) {
		known := slices.ContainsFunc(all, func(one T) bool {
			h := one.Head()
			return h.UID == there.GetUID() && h.Generation >= there.GetGeneration()
		})
		if !known {
			missing = append(missing, r.kind.Name+" "+there.GetName())
		}
	})
	return missing, err
}
