package shard

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Manager is a manager whose controllers work on shards.
type Manager struct {
	ctrl.Manager
	Shards *Shards
}

// Leads reports whether this process is the leader, or holds the first shard. Of several replicas, one does.
func (m Manager) Leads() bool {
	if m.Shards != nil {
		return m.Shards.HoldsShard(0)
	}
	select {
	case <-m.Elected():
		return true
	default:
		return false
	}
}

// Held returns how many shards this process works on, and how many there are. Without shards all is one.
func (m Manager) Held() (held, all int) {
	if m.Shards != nil {
		return m.Shards.number(), m.Shards.Count
	}
	if m.Leads() {
		return 1, 1
	}
	return 0, 1
}

// Complete builds a controller. With a Manager it works on the shards that are held, and when one is acquired it looks at all objects of its kind
// there, which list lists, or at those of them that are for it. With any other manager it works on all.
func Complete(mgr ctrl.Manager, b *builder.Builder, r reconcile.Reconciler, list client.ObjectList, are ...func(client.Object) bool) error {
	m, ok := mgr.(Manager)
	if !ok || m.Shards == nil {
		return b.Complete(r)
	}
	q := &queue{cached: m.GetClient(), list: list, are: are}
	m.Shards.onStart(q.fill)
	return b.WatchesRawSource(q.source()).Complete(&reconciler{shards: m.Shards, of: r})
}

// Forget has what is known of objects, by their keys, be forgotten of a shard when that is acquired: others have worked on it meanwhile.
func Forget(mgr ctrl.Manager, known ...*sync.Map) {
	m, ok := mgr.(Manager)
	if !ok {
		return
	}
	m.Shards.OnAcquire(func(ofShard func(namespace string) bool) {
		for _, of := range known {
			of.Range(func(key, _ any) bool {
				if ofShard(key.(types.NamespacedName).Namespace) {
					of.Delete(key)
				}
				return true
			})
		}
	})
}

// queue is the work queue of a controller, once that has begun.
type queue struct {
	cached client.Reader
	list   client.ObjectList
	are    []func(client.Object) bool
	work   atomic.Pointer[workqueue.TypedRateLimitingInterface[ctrl.Request]]
}

func (q *queue) source() source.Source {
	return source.Func(func(_ context.Context, work workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		q.work.Store(&work)
		return nil
	})
}

// fill has the controller look at all objects of a shard. One that has not begun is told of all when it does.
func (q *queue) fill(ofShard func(namespace string) bool) {
	work := q.work.Load()
	if work == nil {
		return
	}
	list := q.list.DeepCopyObject().(client.ObjectList)
	err := q.cached.List(context.Background(), list)
	if err == nil {
		err = meta.EachListItem(list, func(o runtime.Object) error {
			obj := o.(client.Object)
			for _, is := range q.are {
				if !is(obj) {
					return nil
				}
			}
			if ofShard(obj.GetNamespace()) {
				(*work).Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
			}
			return nil
		})
	}
	if err != nil { // out of a cache, and so for want of its kind only
		ctrl.Log.WithName("shards").Error(err, "Could not find what a shard has", "kind", fmt.Sprintf("%T", list))
	}
}

// skipper is told of requests that are left to who holds their shard.
type skipper interface {
	Skip(req ctrl.Request)
}

// reconciler has another one reconcile what is of shards that this process holds.
type reconciler struct {
	shards *Shards
	of     reconcile.Reconciler
}

// Reconcile implements reconcile.Reconciler. What is left to others, or was cut short, is looked at by who holds the shard next: all of it when that is
// acquired.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, leave, ok := r.shards.enter(ctx, req.Namespace)
	if !ok {
		if s, does := r.of.(skipper); does {
			s.Skip(req)
		}
		return ctrl.Result{}, nil
	}
	defer leave()
	result, err := r.of.Reconcile(ctx, req)
	if ctx.Err() != nil {
		return ctrl.Result{}, nil
	}
	return result, err
}
