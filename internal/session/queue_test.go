package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// desk is a Queue, and the requests that come to its work queue.
type desk struct {
	*Queue
	t *testing.T
}

func newDesk(t *testing.T) *desk {
	work := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	d := &desk{NewQueue(1, 1, time.Millisecond, time.Second), t}
	require.NoError(t, d.Source().Start(t.Context(), work))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.Start(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended; work.ShutDown() })
	require.Eventually(t, func() bool {
		d.pool.mu.Lock()
		defer d.pool.mu.Unlock()
		return d.pool.base != nil
	}, timeout, tick)
	return d
}

// work does what a worker of the queue does with each request, until one has been done with.
func (d *desk) run(reconcile func() (ctrl.Result, error)) {
	req := ctrl.Request{NamespacedName: key("a/1")}
	for done := make(chan struct{}); ; {
		_, err := d.Do(d.t.Context(), req, func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			d.Begin(ctx, key("a"), req, false, func(context.Context) (result ctrl.Result, err error) {
				if result, err = reconcile(); result == (ctrl.Result{}) && err == nil {
					close(done)
				}
				return result, err
			})
			return ctrl.Result{}, nil
		})
		require.NoError(d.t, err)
		came := make(chan ctrl.Request)
		go func() {
			work := *d.work.Load()
			got, _ := work.Get()
			work.Done(got)
			came <- got
		}()
		select {
		case <-done:
			return
		case got := <-came:
			require.Equal(d.t, req, got)
		}
	}
}

// TestWhatFailsComesLaterEachTime, a panic like an error, until it goes on.
func TestWhatFailsComesLaterEachTime(t *testing.T) {
	d := newDesk(t)
	var failures []int
	d.run(func() (ctrl.Result, error) {
		failures = append(failures, d.backoff.NumRequeues(ctrl.Request{NamespacedName: key("a/1")}))
		switch len(failures) {
		case 1:
			return ctrl.Result{}, errors.New("no")
		case 2:
			panic("no")
		case 3:
			return ctrl.Result{RequeueAfter: time.Millisecond}, nil
		default:
			return ctrl.Result{}, nil
		}
	})
	require.Equal(t, []int{0, 1, 2, 0}, failures)
}

// TestWhatNeedsNoSessionAnyMoreHasNotFailed: a request that comes again begins again.
func TestWhatNeedsNoSessionAnyMoreHasNotFailed(t *testing.T) {
	d := newDesk(t)
	req := ctrl.Request{NamespacedName: key("a/1")}
	d.backoff.When(req)
	_, err := d.Do(t.Context(), req, func(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil })
	require.NoError(t, err)
	require.Zero(t, d.backoff.NumRequeues(req))
}

// TestASessionThatFailsAtOnceIsNotForgotten though it has ended before the worker that began it.
func TestASessionThatFailsAtOnceIsNotForgotten(t *testing.T) {
	d := newDesk(t)
	req := ctrl.Request{NamespacedName: key("a/1")}
	for failures := 1; failures <= 3; failures++ {
		_, err := d.Do(t.Context(), req, func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			d.Begin(ctx, key("a"), req, false, func(context.Context) (ctrl.Result, error) { return ctrl.Result{}, errors.New("no") })
			require.Eventually(t, func() bool {
				running, _ := d.Load()
				return running == 0
			}, timeout, tick)
			return ctrl.Result{}, nil
		})
		require.NoError(t, err)
		require.Equal(t, failures, d.backoff.NumRequeues(req))
	}
}

// TestWhatIsAddedFirstComesFirst, though all are in the queue already, to come later; and the next time it comes as others do.
func TestWhatIsAddedFirstComesFirst(t *testing.T) {
	work := priorityqueue.New[ctrl.Request](t.Name())
	t.Cleanup(work.ShutDown)
	q := NewQueue(1, 1, time.Millisecond, time.Second)
	q.AddFirst(ctrl.Request{NamespacedName: key("a/0")}) // nobody leads
	require.NoError(t, q.Source().Start(t.Context(), work))
	a, b := ctrl.Request{NamespacedName: key("a/1")}, ctrl.Request{NamespacedName: key("b/1")}
	work.AddAfter(a, time.Hour)
	work.AddAfter(b, time.Hour)
	q.AddFirst(b)
	q.Add(a)
	first, priority, _ := work.GetWithPriority()
	require.Equal(t, b, first)
	require.Positive(t, priority)
	result, err := q.Do(t.Context(), b, func(context.Context, ctrl.Request) (ctrl.Result, error) {
		return ctrl.Result{RequeueAfter: time.Hour}, nil
	})
	require.NoError(t, err)
	require.Equal(t, ctrl.Result{RequeueAfter: time.Hour, Priority: ptr.To(0)}, result)
	second, _ := work.Get()
	require.Equal(t, a, second)
}

// TestAQueueWithoutPriorities takes requests as they come.
func TestAQueueWithoutPriorities(t *testing.T) {
	d := newDesk(t)
	d.AddFirst(ctrl.Request{NamespacedName: key("a/1")})
	got, _ := (*d.work.Load()).Get()
	require.Equal(t, ctrl.Request{NamespacedName: key("a/1")}, got)
}
