package session

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Queue is a Pool beside the work queue of a controller, which has to have Source among its sources. What ends in a session comes back to the
// queue as what ends in one of the queue's workers does. Without one, a nil Queue, the worker does it all.
type Queue struct {
	pool    Pool
	work    atomic.Pointer[workqueue.TypedRateLimitingInterface[ctrl.Request]] // nil until the controller begins
	backoff workqueue.TypedRateLimiter[ctrl.Request]
}

// NewQueue returns a Queue with the bounds of its Pool, and how soon after an error a session begins again: the first time, doubled each time
// after that, and at most.
func NewQueue(most, mostOfCluster int, first, atMost time.Duration) *Queue {
	q := &Queue{backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](first, atMost)}
	q.pool = Pool{Most: most, MostOfCluster: mostOfCluster, Wake: func(key types.NamespacedName) { q.Add(ctrl.Request{NamespacedName: key}) }}
	return q
}

// Start implements manager.Runnable.
func (q *Queue) Start(ctx context.Context) error { return q.pool.Start(ctx) }

// Source gives the Queue the work queue of the controller whose source it is.
func (q *Queue) Source() source.Source {
	return source.Func(func(_ context.Context, work workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		q.work.Store(&work)
		return nil
	})
}

// Add has requests come now. A controller that has not begun, for it does not lead, has all of them come when it does.
func (q *Queue) Add(requests ...ctrl.Request) {
	if work := q.work.Load(); work != nil {
		for _, req := range requests {
			(*work).Add(req)
		}
	}
}

// ahead is the priority of requests that come before others.
const ahead = 1

// AddFirst has requests come now, before others. The order in which requests are added does not do that: one that is in the queue already, to come later,
// keeps its place among the others that are.
func (q *Queue) AddFirst(requests ...ctrl.Request) {
	work := q.work.Load()
	if work == nil {
		return
	}
	if byPriority, ok := (*work).(priorityqueue.PriorityQueue[ctrl.Request]); ok {
		byPriority.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(ahead)}, requests...)
		return
	}
	q.Add(requests...)
}

// Do reconciles in a worker of the queue, which may begin a session. While one runs it does nothing: the session's end has the request come
// again.
func (q *Queue) Do(ctx context.Context, req ctrl.Request, reconcile func(context.Context, ctrl.Request) (ctrl.Result, error)) (ctrl.Result, error) {
	if q == nil {
		return reconcile(ctx, req)
	}
	if q.pool.Running(req.NamespacedName) {
		return ctrl.Result{}, nil
	}
	needs := false
	result, err := reconcile(context.WithValue(ctx, needsSession{}, &needs), req)
	q.pool.Forgo(req.NamespacedName)
	if !needs && err == nil {
		q.backoff.Forget(req)
	}
	if result.RequeueAfter > 0 || err != nil {
		result.Priority = ptr.To(0) // it comes first once
	}
	return result, err
}

// Skip gives back the place that a request has which is not reconciled.
func (q *Queue) Skip(req ctrl.Request) {
	if q != nil {
		q.pool.Forgo(req.NamespacedName)
	}
}

// needsSession is the key of a context's *bool, which tells that a reconciliation needs a session.
type needsSession struct{}

// Begin has a session reconcile on, and returns true, if there is a place for it; else the request comes again when there is.
func (q *Queue) Begin(ctx context.Context, of types.NamespacedName, req ctrl.Request, urgent bool, reconcile func(context.Context) (ctrl.Result, error)) bool {
	if needs, ok := ctx.Value(needsSession{}).(*bool); ok {
		*needs = true
	}
	return q.pool.Begin(ctx, of, req.NamespacedName, urgent, func(ctx context.Context) {
		result, err := safely(ctx, reconcile)
		switch {
		case ctx.Err() != nil: // whoever leads next looks at all, and whoever holds its shard at what this process asks for if it does so again
			q.Add(req)
		case err != nil:
			ctrl.LoggerFrom(ctx).Error(err, "Reconciler error")
			q.addAfter(req, q.backoff.When(req))
		default:
			q.backoff.Forget(req)
			if result.RequeueAfter > 0 {
				q.addAfter(req, result.RequeueAfter)
			}
		}
	})
}

func (q *Queue) addAfter(req ctrl.Request, d time.Duration) {
	if work := q.work.Load(); work != nil { // it is, since the controller began the session
		(*work).AddAfter(req, d)
	}
}

// Load returns how many sessions run or are about to, and how many wait for a place.
func (q *Queue) Load() (running, waiting int) { return q.pool.Load() }

// safely makes an error of a panic, as the queue's workers do.
func safely(ctx context.Context, reconcile func(context.Context) (ctrl.Result, error)) (result ctrl.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v [recovered]\n%s", p, debug.Stack())
		}
	}()
	return reconcile(ctx)
}
