package shard

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// in returns a request in a namespace of a shard of two.
func in(shard int) ctrl.Request {
	for i := 0; ; i++ {
		if name := fmt.Sprint("ns-", i); Of(name, 2) == shard {
			return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: name, Name: "x"}}
		}
	}
}

// desk is a reconciler of a controller whose queue is looked at.
func desk(t *testing.T, s *Shards, f reconcile.Func) (*reconciler, workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	work := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	t.Cleanup(work.ShutDown)
	q := &queue{}
	require.NoError(t, q.source().Start(t.Context(), work))
	return &reconciler{shards: s, queue: q, of: f}, work
}

func TestWhatIsAskedForComesWhenItsShardIsHeld(t *testing.T) {
	s := &Shards{Count: 2}
	var did []ctrl.Request
	r, work := desk(t, s, func(_ context.Context, req ctrl.Request) (ctrl.Result, error) {
		did = append(did, req)
		return ctrl.Result{}, nil
	})
	for _, req := range []ctrl.Request{in(0), in(1), in(1)} {
		_, err := r.Reconcile(t.Context(), req)
		require.NoError(t, err)
	}
	require.Empty(t, did)
	require.False(t, s.Holds(in(1).Namespace))

	var forgotten []bool
	s.OnAcquire(func(of func(string) bool) { forgotten = append(forgotten, of(in(0).Namespace), of(in(1).Namespace)) })
	s.acquire(1)
	require.Equal(t, []bool{false, true}, forgotten)
	require.True(t, s.Holds(in(1).Namespace))
	require.Equal(t, 1, work.Len(), "once, and not that of the other shard")
	req, _ := work.Get()
	require.Equal(t, in(1), req)
	_, err := r.Reconcile(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, []ctrl.Request{in(1)}, did)
}

// TestAShardIsReleasedWhenTheWorkOnItHasEnded, what it has begun beside it included.
func TestAShardIsReleasedWhenTheWorkOnItHasEnded(t *testing.T) {
	s := &Shards{Count: 2}
	s.acquire(0)
	beside := make(chan struct{})
	began := make(chan struct{})
	r, work := desk(t, s, func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
		other, leave := Extend(context.WithoutCancel(ctx))
		go func() {
			defer leave()
			<-other.Done()
			<-beside
		}()
		close(began)
		<-ctx.Done()
		return ctrl.Result{}, nil
	})
	ended := make(chan error)
	go func() {
		_, err := r.Reconcile(t.Context(), in(0))
		ended <- err
	}()
	<-began
	require.ErrorContains(t, s.release(0, 50*time.Millisecond), "shard 0 has not ended")
	require.ErrorIs(t, <-ended, context.Canceled, "what was cut short comes again, to be parked")
	_, err := r.Reconcile(t.Context(), in(0))
	require.NoError(t, err)

	s.acquire(0)
	require.Equal(t, 1, work.Len())
	close(beside)
	require.NoError(t, s.release(0, time.Minute))
	require.NoError(t, s.release(0, time.Minute), "which it was")
}

func TestWithoutShardsAllIsHeld(t *testing.T) {
	var s *Shards
	require.True(t, s.Holds("any"))
	s.OnAcquire(nil)
	ctx, leave := Extend(t.Context())
	leave()
	require.NoError(t, ctx.Err())
}
