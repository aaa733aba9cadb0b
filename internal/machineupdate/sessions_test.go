package machineupdate

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/workload"
)

var request = ctrl.Request{NamespacedName: key}

// besideQueue has a session at a time run beside a queue until the test ends. It returns the queue.
func (w *world) besideQueue() workqueue.TypedRateLimitingInterface[ctrl.Request] {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	sessions := NewSessions(1, 1)
	require.NoError(w.t, sessions.Source().Start(w.t.Context(), queue))
	w.reconciler.Sessions = sessions
	ctx, cancel := context.WithCancel(w.t.Context())
	began, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = sessions.Start(&awaited{Context: ctx, tell: sync.OnceFunc(func() { close(began) })})
	}()
	<-began
	w.t.Cleanup(func() { cancel(); <-ended; queue.ShutDown() })
	return queue
}

// awaited tells that somebody awaits its end: a pool does when it has begun.
type awaited struct {
	context.Context
	tell func()
}

func (a *awaited) Done() <-chan struct{} {
	a.tell()
	return a.Context.Done()
}

// blockNode has the node be at a verb until release is called; at is closed when it is there.
func (w *world) blockNode(verb string) (at chan struct{}, release func()) {
	at, gate, first := make(chan struct{}), make(chan struct{}), true
	w.node.before = func(v string) {
		if v == verb && first {
			first = false
			close(at)
			<-gate
		}
	}
	return at, func() { close(gate) }
}

// takeNext takes the update out of the queue, when it is there.
func takeNext(t *testing.T, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	got, _ := queue.Get()
	require.Equal(t, request, got)
	queue.Done(got)
}

// endsSession waits for the end of the update's session.
func (w *world) endsSession() {
	require.Eventually(w.t, func() bool {
		taken, _ := w.reconciler.Sessions.Load()
		return taken == 0
	}, time.Minute, time.Millisecond)
}

// TestANodeKeepsNoWorkerOfTheQueue has a node not answer. Whoever looks at its update meanwhile is not kept either, and looks again.
func TestANodeKeepsNoWorkerOfTheQueue(t *testing.T) {
	w := newWorld(t)
	queue := w.besideQueue()
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.ask()
	at, release := w.blockNode("plan")
	require.Zero(t, w.reconcile(), "its session goes on")
	<-at
	require.Zero(t, w.reconcile())
	require.Zero(t, queue.Len())
	release()
	takeNext(t, queue) // since it was looked at meanwhile
	w.requirePhase(refitv1.PhaseSucceeded)
	require.Equal(t, []string{"plan", "apply", "plan"}, w.node.calls, "the second look has done nothing")
}

// TestAnUpdateWithoutAPlaceTouchesNothing: no lease, no slot, no write; what it was to begin with would be old when there is one.
func TestAnUpdateWithoutAPlaceTouchesNothing(t *testing.T) {
	w := newWorld(t)
	queue := w.besideQueue()
	held := make(chan struct{})
	other := types.NamespacedName{Namespace: key.Namespace, Name: "other"}
	w.reconciler.Sessions.Begin(t.Context(), other, ctrl.Request{NamespacedName: other}, false, func(ctx context.Context) (ctrl.Result, error) {
		select {
		case <-held:
		case <-ctx.Done():
		}
		return ctrl.Result{}, nil
	})
	w.ask()
	w.reconcile()
	mu := w.update()
	require.Equal(t, refitv1.PhasePending, mu.Status.Phase)
	w.reconcile()
	require.Equal(t, mu.ResourceVersion, w.update().ResourceVersion)
	require.Empty(t, w.node.calls)
	require.Empty(t, w.leaseOf().UID)
	require.Nil(t, w.leaseOf().Spec.HolderIdentity)

	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	close(held)
	takeNext(t, queue)
	w.reconcile()
	w.endsSession()
	w.requirePhase(refitv1.PhaseSucceeded)
}

// flaky are nodes that can't be dialled at first.
type flaky struct {
	*fakeNode
	failures int
	fail     func() error
}

func (f *flaky) Dial(ctx context.Context, target remote.Target) (remote.Conn, error) {
	if f.failures--; f.failures >= 0 {
		return nil, f.fail()
	}
	return f.fakeNode.Dial(ctx, target)
}

// TestASessionThatFails comes back by the queue; a panic is an error of one update, and not the end of the process.
func TestASessionThatFails(t *testing.T) {
	for name, fail := range map[string]func() error{
		"an error": func() error { return errors.New("nobody knows") }, "a panic": func() error { panic("no") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			queue := w.besideQueue()
			nodes := &flaky{fakeNode: w.node, failures: 3, fail: fail}
			w.reconciler.Dialer = nodes
			w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
			w.ask()
			w.reconcile()
			for range 3 {
				takeNext(t, queue)
				w.endsSession()
				w.reconcile()
			}
			w.endsSession()
			w.requirePhase(refitv1.PhaseSucceeded)
		})
	}
}

// TestALoginThatIsAwaitedIsMadeInASession though the management cluster fails before anybody has asked the node.
func TestALoginThatIsAwaitedIsMadeInASession(t *testing.T) {
	w := cutOff(t, drainA)
	d := &loginDialer{fakeNode: w.node}
	w.reconciler.Dialer, w.reconciler.ConfirmRetry = d, time.Nanosecond
	w.reconciler.Live = withoutClusters{w.reconciler.Live}
	w.node.err, w.node.before = nil, nil
	w.node.applied = []node.Status{awaitsLogin, goesOn}
	queue := w.besideQueue()
	require.Zero(t, w.reconcile())
	takeNext(t, queue)
	require.Len(t, d.confirmed, 1)
}

// nobody is what reaches neither a workload cluster nor a node, and fails the test if it is asked to.
type nobody struct{ t *testing.T }

func (n nobody) Get(context.Context, client.ObjectKey) (*workload.Cluster, error) {
	n.t.Error("a worker of the queue asks a workload cluster")
	return nil, workload.ErrUnavailable
}

func (n nobody) Dial(context.Context, remote.Target) (remote.Conn, error) {
	n.t.Error("a worker of the queue asks a node")
	return nil, remote.ErrUnreachable
}

// TestTheQueueTalksToNobodyOutside demands that each command that talks to nodes or workload clusters comes after one that leaves the queue.
func TestTheQueueTalksToNobodyOutside(t *testing.T) {
	for name, arrange := range map[string]func(*testing.T) *world{
		"asked for":    func(t *testing.T) *world { w := newWorld(t); w.ask(); return w },
		"under way":    func(t *testing.T) *world { return cutOff(t, drainA) },
		"other specs":  func(t *testing.T) *world { w := cutOff(t, drainA); w.change(); w.ask(); return w },
		"withdrawn":    func(t *testing.T) *world { w := cutOff(t, drainA); w.mark(false); return w },
		"held":         func(t *testing.T) *world { w := cutOff(t, drainA); w.hold(true); return w },
		"paused":       func(t *testing.T) *world { w := cutOff(t, drainA); w.pause(true); return w },
		"deleted":      func(t *testing.T) *world { w := cutOff(t, drainA); w.deleteUpdate(); return w },
		"machine gone": func(t *testing.T) *world { w := cutOff(t, drainA); w.deleteMachine(); return w },
		"abandoned":    func(t *testing.T) *world { w := failed(t, false); w.annotate(refitv1.AbandonAnnotation); return w },
		"failed, and deleted": func(t *testing.T) *world {
			w := failed(t, false)
			w.deleteUpdate()
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := arrange(t)
			w.node.err, w.node.before = nil, nil
			w.reconciler.Sessions = NewSessions(0, 0) // it has no place for anybody
			w.reconciler.Workloads, w.reconciler.Dialer = nobody{t}, nobody{t}
			w.reconcile()
			_, waiting := w.reconciler.Sessions.Load()
			require.Equal(t, 1, waiting, "it waits for a place")
		})
	}
}
