package shard

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
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

func always() bool { return true }

// TestAShardThatIsLostBeforeItIsBegunIsNotHeld: to forget what was known of it takes a while.
func TestAShardThatIsLostBeforeItIsBegunIsNotHeld(t *testing.T) {
	s := &Shards{Count: 2}
	s.acquire(0, func() bool { return false })
	require.False(t, s.HoldsShard(0))
}

// desk is a reconciler of a controller whose queue is looked at, and that has objects.
func desk(t *testing.T, s *Shards, f reconcile.Func, has ...ctrl.Request) (*reconciler, workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	work := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	t.Cleanup(work.ShutDown)
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	b := fake.NewClientBuilder().WithScheme(scheme)
	for _, req := range has {
		b.WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}})
	}
	q := &queue{cached: b.Build(), list: &corev1.ConfigMapList{}}
	s.onStart(q.fill)
	require.NoError(t, q.source().Start(t.Context(), work))
	return &reconciler{shards: s, of: f}, work
}

func TestAShardIsLookedAtWhenItIsAcquired(t *testing.T) {
	s := &Shards{Count: 2}
	var did []ctrl.Request
	r, work := desk(t, s, func(_ context.Context, req ctrl.Request) (ctrl.Result, error) {
		did = append(did, req)
		return ctrl.Result{}, nil
	}, in(0), in(1))
	for _, req := range []ctrl.Request{in(0), in(1)} {
		_, err := r.Reconcile(t.Context(), req)
		require.NoError(t, err)
	}
	require.Empty(t, did)
	require.False(t, s.Holds(in(1).Namespace))

	var known sync.Map
	known.Store(in(0).NamespacedName, true)
	known.Store(in(1).NamespacedName, true)
	Forget(Manager{Shards: s}, &known)
	s.acquire(1, always)
	_, zero := known.Load(in(0).NamespacedName)
	_, one := known.Load(in(1).NamespacedName)
	require.Equal(t, []bool{true, false}, []bool{zero, one}, "others have worked on what is acquired")
	require.True(t, s.Holds(in(1).Namespace))
	require.Equal(t, 1, work.Len())
	req, _ := work.Get()
	require.Equal(t, in(1), req)
	_, err := r.Reconcile(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, []ctrl.Request{in(1)}, did)
}

// TestAShardIsReleasedWhenTheWorkOnItHasEnded, what it has begun beside it included.
func TestAShardIsReleasedWhenTheWorkOnItHasEnded(t *testing.T) {
	s := &Shards{Count: 2}
	s.acquire(0, always)
	beside, began := make(chan struct{}), make(chan struct{})
	r, _ := desk(t, s, func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
		other, leave := Extend(context.WithoutCancel(ctx))
		go func() {
			defer leave()
			<-other.Done()
			<-beside
		}()
		close(began)
		<-ctx.Done()
		return ctrl.Result{}, ctx.Err()
	})
	ended := make(chan error)
	go func() {
		_, err := r.Reconcile(t.Context(), in(0))
		ended <- err
	}()
	<-began
	await := s.end(0)
	require.NoError(t, <-ended, "it has no error, since all is looked at when the shard is acquired")
	require.False(t, s.HoldsShard(0))
	require.ErrorContains(t, await(50*time.Millisecond), "shard 0 has not ended")
	close(beside)
	require.NoError(t, await(time.Minute))
	require.NoError(t, s.end(0)(time.Minute), "which it was")
}

// skipping is told of what is left to others.
type skipping struct {
	reconcile.Func
	skipped []ctrl.Request
}

func (s *skipping) Skip(req ctrl.Request) { s.skipped = append(s.skipped, req) }

func TestWhoHasAPlaceIsToldThatItIsNotUsed(t *testing.T) {
	of := &skipping{}
	_, err := (&reconciler{shards: &Shards{Count: 2}, of: of}).Reconcile(t.Context(), in(0))
	require.NoError(t, err)
	require.Equal(t, []ctrl.Request{in(0)}, of.skipped)
}

func TestWithoutShardsAllIsHeld(t *testing.T) {
	var s *Shards
	require.True(t, s.Holds("any"))
	s.OnAcquire(nil)
	ctx, leave := Extend(t.Context())
	leave()
	require.NoError(t, ctx.Err())
}
