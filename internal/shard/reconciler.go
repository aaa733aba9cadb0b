package shard

import (
	"context"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
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

// Complete builds a controller. With a Manager it works on the shards that are held; what it is asked for of others comes when they are. With
// any other manager it works on all.
func Complete(mgr ctrl.Manager, b *builder.Builder, r reconcile.Reconciler) error {
	m, ok := mgr.(Manager)
	if !ok || m.Shards == nil {
		return b.Complete(r)
	}
	q := &queue{}
	return b.WatchesRawSource(q.source()).Complete(&reconciler{shards: m.Shards, queue: q, of: r})
}

// queue is the work queue of a controller, once that has begun.
type queue struct {
	work atomic.Pointer[workqueue.TypedRateLimitingInterface[ctrl.Request]]
}

func (q *queue) source() source.Source {
	return source.Func(func(_ context.Context, work workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		q.work.Store(&work)
		return nil
	})
}

func (q *queue) add(req ctrl.Request) {
	if work := q.work.Load(); work != nil { // who has parked the request was called by the queue's controller
		(*work).Add(req)
	}
}

// skipper is told of requests that are left to who holds their shard.
type skipper interface {
	Skip(req ctrl.Request)
}

// reconciler has another one reconcile what is of shards that this process holds.
type reconciler struct {
	shards *Shards
	queue  *queue
	of     reconcile.Reconciler
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, leave, ok := r.shards.enter(ctx, r.queue, req)
	if !ok {
		if s, does := r.of.(skipper); does {
			s.Skip(req)
		}
		return ctrl.Result{}, nil
	}
	defer leave()
	result, err := r.of.Reconcile(ctx, req)
	if ctx.Err() != nil {
		// What was cut short is looked at by who holds the shard next, and here when that is this process again.
		return ctrl.Result{RequeueAfter: result.RequeueAfter}, context.Cause(ctx)
	}
	return result, err
}
