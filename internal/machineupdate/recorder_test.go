package machineupdate

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/managementtest"
)

// recorded returns a world whose hook answers before an update is recorded, with what records it, which does not run.
func recorded(t *testing.T) (*world, *Recorder) {
	w := newWorld(t)
	return w, NewRecorder(w.store)
}

// ofC1 is the key of the world's Cluster.
var ofC1 = types.NamespacedName{Namespace: key.Namespace, Name: "c1"}

// one has what is queued be recorded.
func (w *world) one(r *Recorder) {
	require.Positive(w.t, r.asks.clusters.Len())
	require.True(w.t, r.next(w.t.Context()))
}

func (w *world) answer(digest string) inplace.Progress {
	p, err := w.store.Update(w.t.Context(), key.Namespace, key.Name, digest)
	require.NoError(w.t, err)
	return p
}

func (w *world) requireNone() {
	err := w.Get(w.t.Context(), key, &refitv1.MachineUpdate{})
	require.True(w.t, apierrors.IsNotFound(err), err)
}

func TestAnUpdateIsSaidToBeRecordedWhenItIs(t *testing.T) {
	w, r := recorded(t)
	digest := w.digest()
	for range 3 {
		require.Equal(t, recording(1), w.answer(digest))
	}
	require.Len(t, r.asks.line[ofC1], 1, "each Machine has one turn")
	w.requireNone()
	w.one(r)
	require.Equal(t, digest, w.update().Spec.Digest)
	require.Equal(t, pending(), w.answer(digest))
	require.Zero(t, r.asks.clusters.Len())
	require.Zero(t, r.asks.number())

	w.change()
	require.NotEqual(t, pending(), w.answer(w.digest()), "other specs are recorded before that is said")
	w.one(r)
	require.Equal(t, w.digest(), w.update().Spec.Digest)
}

// TestACacheThatIsBehind has the cache not know yet what was recorded, and then know something newer.
func TestACacheThatIsBehind(t *testing.T) {
	w, r := recorded(t)
	behind := newWorld(t)
	w.store.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*refitv1.MachineUpdate); ok {
				return behind.Get(ctx, k, obj, opts...)
			}
			return c.Get(ctx, k, obj, opts...)
		},
	})
	digest := w.digest()
	w.answer(digest)
	w.one(r)
	require.Equal(t, pending(), w.answer(digest))
	require.Zero(t, r.asks.clusters.Len(), "it is known to be recorded")

	newer := w.update()
	newer.ResourceVersion, newer.Spec.Digest = "", "of another replica"
	require.NoError(t, behind.Create(t.Context(), newer))
	require.Equal(t, recording(1), w.answer(digest), "something else is recorded by now")
}

// TestAMachineThatIsMadeAgain has a Machine be deleted and made again while caches and the recorder know the one before.
func TestAMachineThatIsMadeAgain(t *testing.T) {
	w, r := recorded(t)
	digest := w.digest()
	w.answer(digest)
	w.one(r)
	var machine clusterv1.Machine
	require.NoError(t, w.Get(t.Context(), key, &machine))
	again := machine.DeepCopy()
	require.NoError(t, w.Delete(t.Context(), &machine))
	again.UID, again.ResourceVersion = "uid-2", ""
	require.NoError(t, w.Create(t.Context(), again))

	require.Equal(t, recording(1), w.answer(digest), "what is recorded is of the Machine before")
	w.one(r)
	require.NotEqual(t, pending(), w.answer(digest))
	mu := w.update()
	require.False(t, mu.DeletionTimestamp.IsZero())
	mu.Finalizers = nil
	require.NoError(t, w.Update(t.Context(), mu))
	w.one(r)
	require.Equal(t, "uid-2", string(w.update().OwnerReferences[0].UID))
	require.Equal(t, pending(), w.answer(digest))
}

// TestAnEarlierMachinesUpdateIsNoAnswer has the cache not know the MachineUpdate of an earlier Machine, so that it can't be made.
func TestAnEarlierMachinesUpdateIsNoAnswer(t *testing.T) {
	w, r := recorded(t)
	digest := w.digest()
	base := w.Client.(client.WithWatch)
	w.store.Client = interceptor.NewClient(base, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			return apierrors.NewAlreadyExists(refitv1.GroupVersion.WithResource("machineupdates").GroupResource(), obj.GetName())
		},
	})
	w.answer(digest)
	w.one(r)
	require.Equal(t, recording(1), w.answer(digest))
}

func TestWhatCouldNotBeRecordedIsTriedAgain(t *testing.T) {
	w, r := recorded(t)
	digest := w.digest()
	fails := true
	w.store.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if fails {
				return errors.New("etcd is slow")
			}
			return c.Create(ctx, obj, opts...)
		},
	})
	w.answer(digest)
	w.one(r)
	w.requireNone()
	require.Contains(t, w.answer(digest).Message, "could not be recorded")
	fails = false
	require.True(t, r.next(t.Context()), "it comes again by itself")
	require.Equal(t, digest, w.update().Spec.Digest)

	fails = true
	w.change()
	require.NoError(t, w.Delete(t.Context(), w.update()))
	mu := w.update()
	mu.Finalizers = nil
	require.NoError(t, w.Update(t.Context(), mu))
	w.answer(w.digest())
	for range recordTries + 1 {
		require.True(t, r.next(t.Context()))
	}
	require.Zero(t, r.asks.number(), "Cluster API asks again, if it still wants it")
}

// TestNobodyCrowdsClusterAPIOut has somebody ask for what the Machine is not to have, again and again.
func TestNobodyCrowdsClusterAPIOut(t *testing.T) {
	w, r := recorded(t)
	for i := range 2 * maxDigests {
		w.answer(fmt.Sprint("wrong ", i))
	}
	require.Len(t, r.asks.of[key].digests, maxDigests)
	require.Contains(t, w.answer(w.digest()).Message, "is not yet")
	w.one(r)
	w.requireNone()
	require.Equal(t, *otherSpecs(), w.answer("wrong again"), "what the specs are is known for a moment")
	require.Equal(t, recording(1), w.answer(w.digest()))
	w.one(r)
	require.Equal(t, w.digest(), w.update().Spec.Digest)
}

func TestWhatIsNoLongerAskedForIsNotRecorded(t *testing.T) {
	w, r := recorded(t)
	w.answer(w.digest())
	w.mark(false)
	w.one(r)
	w.requireNone()
	require.Equal(t, *notAsked(), w.answer(w.digest()))
	require.Zero(t, r.asks.clusters.Len())
}

// TestTheRecorderEndsWithItsContext has the API server hang when refit ends.
func TestTheRecorderEndsWithItsContext(t *testing.T) {
	w, r := recorded(t)
	var hangs atomic.Bool
	w.store.Live = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			hangs.Store(true)
			<-ctx.Done()
			return ctx.Err()
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Start(ctx) }()
	w.answer(w.digest())
	require.Eventually(t, hangs.Load, time.Minute, time.Millisecond)
	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		require.Fail(t, "it does not end")
	}
	w.requireNone()
}

// uncopiedCache reads as a cache does that copies nothing.
type uncopiedCache struct {
	client.Client
	machine *clusterv1.Machine
	mu      *refitv1.MachineUpdate
}

func (c uncopiedCache) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	switch out := obj.(type) {
	case *clusterv1.Machine:
		*out = *c.machine
	case *refitv1.MachineUpdate:
		*out = *c.mu
	default:
		return fmt.Errorf("%T is not in the cache", obj)
	}
	return nil
}

// waitsIn returns a store with an update that waits, out of a cache.
func waitsIn() *Store {
	machine := managementtest.Machine(key.Namespace, key.Name, "c1", func(m *clusterv1.Machine) { m.UID, m.Annotations = "uid-1", marks() })
	mu := &refitv1.MachineUpdate{Spec: refitv1.MachineUpdateSpec{Digest: "d"}}
	mu.Namespace, mu.Name = key.Namespace, key.Name
	mu.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))}
	mu.Status.Phase, mu.Status.ObservedDigest, mu.Status.Message = refitv1.PhaseWaiting, "d", "the policy is closed"
	store := &Store{Client: uncopiedCache{machine: machine, mu: mu}, Clock: clocktesting.NewFakeClock(managementtest.Start)}
	NewRecorder(store)
	return store
}

// TestTheSameAskIsCheap bounds what Cluster API's asking again costs: no request, which would be a nil client's, and few allocations.
func TestTheSameAskIsCheap(t *testing.T) {
	store := waitsIn()
	allocations := testing.AllocsPerRun(100, func() {
		p, err := store.Update(t.Context(), key.Namespace, key.Name, "d")
		if err != nil || p.Message != "the policy is closed" {
			t.Fatal(p, err)
		}
	})
	require.LessOrEqual(t, allocations, 20.0)
}

// BenchmarkTheSameAsk is what TestTheSameAskIsCheap bounds, in time.
func BenchmarkTheSameAsk(b *testing.B) {
	store := waitsIn()
	b.ReportAllocs()
	for b.Loop() {
		if p, err := store.Update(b.Context(), key.Namespace, key.Name, "d"); err != nil || p.Done {
			b.Fatal(p, err)
		}
	}
}

// TestWhatHasNotBegunIsAskedAboutLater the more updates there are that are recorded and have not begun: who looks at them has no time for thousands of
// questions a second.
func TestWhatHasNotBegunIsAskedAboutLater(t *testing.T) {
	w, r := recorded(t)
	digest := w.digest()
	for i := range 900 {
		r.begins.add(types.NamespacedName{Name: fmt.Sprint("m", i)}, w.clock.Now())
	}
	later := func(of inplace.Progress) inplace.Progress {
		of.RetryAfter = 4 * time.Second
		return of
	}
	require.Equal(t, later(recording(1)), w.answer(digest))
	w.one(r)
	require.Equal(t, 901, r.begins.number(w.clock.Now()))
	require.Equal(t, later(pending()), w.answer(digest))
	require.Equal(t, later(pending()), w.answer(digest), "as the cache has it")
	w.reconcile()
	require.NotEqual(t, pending().Message, w.answer(digest).Message)
	require.Equal(t, 900, r.begins.number(w.clock.Now()))
	w.clock.Step(begunWithin)
	w.change()
	require.Equal(t, retrySoon, w.answer(w.digest()).RetryAfter, "others may be gone, or were asked of another replica")
}
