package policykind

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Settle is how long changes are waited for that are counted together.
const Settle = 30 * time.Second

// Later has a controller look at all objects of a kind in a namespace some time after something has changed there, and once for all that changes until
// then: to list them for each of a fleet's changes would take longer than to count.
type Later struct {
	// Client reads from a cache.
	Client client.Reader
	// List is an empty list of the kind.
	List client.ObjectList
	// After is how much later; 0: Settle.
	After time.Duration

	due sync.Map // the namespaces that are to be looked at
}

type laterQueue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// WatchSelected has the controller look when selectors may select other Machines than before.
func (l *Later) WatchSelected(b *builder.Builder) *builder.Builder {
	labels := builder.WithPredicates(predicate.LabelChangedPredicate{}) // what comes and goes passes it
	return b.Watches(&clusterv1.Machine{}, l.Handler(), labels).Watches(&clusterv1.Cluster{}, l.Handler(), labels)
}

// Handler returns what is told of changes.
func (l *Later) Handler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q laterQueue) { l.changed(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q laterQueue) {
			if e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion() {
				l.changed(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q laterQueue) { l.changed(ctx, e.Object, q) },
	}
}

func (l *Later) changed(ctx context.Context, o client.Object, q laterQueue) {
	namespace := o.GetNamespace()
	if _, due := l.due.LoadOrStore(namespace, true); due {
		return
	}
	after := l.After
	if after == 0 {
		after = Settle
	}
	ctx = context.WithoutCancel(ctx)
	time.AfterFunc(after, func() {
		l.due.Delete(namespace) // what changes from here on is not seen
		list := l.List.DeepCopyObject().(client.ObjectList)
		err := l.Client.List(ctx, list, client.InNamespace(namespace))
		if err == nil {
			err = meta.EachListItem(list, func(item runtime.Object) error {
				if obj, ok := item.(client.Object); ok {
					q.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
				}
				return nil
			})
		}
		if err != nil { // out of a cache, and so for want of its kind only
			ctrl.LoggerFrom(ctx).Error(err, "Could not find who counts what has changed", "namespace", namespace)
		}
	})
}
