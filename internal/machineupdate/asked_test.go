package machineupdate

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drift"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/workload"
)

func TestAsked(t *testing.T) {
	marked := clusterv1.UpdateInProgressAnnotation
	pending := runtimev1.PendingHooksAnnotation
	for name, tc := range map[string]struct {
		annotations map[string]string
		deleted     bool
		want        bool
	}{
		"both":                         {annotations: marks(), want: true},
		"beside other hooks":           {annotations: map[string]string{marked: "", pending: "AfterThis,UpdateMachine"}, want: true},
		"before the hook is pending":   {annotations: map[string]string{marked: ""}},
		"after the first one was gone": {annotations: map[string]string{pending: "UpdateMachine"}},
		"another hook is pending":      {annotations: map[string]string{marked: "", pending: "UpdateMachineSet"}},
		"neither":                      {},
		"being deleted":                {annotations: marks(), deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}}
			if tc.deleted {
				m.DeletionTimestamp = &metav1.Time{}
				*m.DeletionTimestamp = metav1.Now()
			}
			require.Equal(t, tc.want, asked(m))
		})
	}
}

// requireGone requires that nothing is left of an update.
func (w *world) requireGone() {
	w.t.Helper()
	err := w.Get(w.t.Context(), key, &refitv1.MachineUpdate{})
	require.True(w.t, apierrors.IsNotFound(err), "%v", err)
}

// succeed has an update of the machine made, and Cluster API be told.
func (w *world) succeed() (digest string) {
	w.ask()
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	require.True(w.t, w.ask())
	w.mark(false)
	w.node.calls = nil
	return w.digest()
}

// An update of which nothing was begun on the node leaves nothing behind.
func TestAnUpdateIsWithdrawn(t *testing.T) {
	for name, tc := range map[string]struct {
		begin    func(*testing.T) *world
		occupied bool
	}{
		"before anybody has looked at it": {begin: func(t *testing.T) *world { w := newWorld(t); w.ask(); return w }},
		"while it waits for a window":     {begin: func(t *testing.T) *world { return planned(t, drainA) }},
		"while its node is drained":       {begin: draining, occupied: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.begin(t)
			w.node.calls = nil
			w.mark(false)
			w.reconcile()
			w.requireGone()
			require.Empty(t, w.node.calls)
			if tc.occupied {
				w.requireFree(false)
			}
			w.mark(true)
			require.False(t, w.ask(), "asked again, it begins again")
			require.Equal(t, w.digest(), w.update().Spec.Digest)
		})
	}
	t.Run("and what was applied before is still known and looked after", func(t *testing.T) {
		w := newWorld(t)
		applied := w.succeed()
		w.change()
		w.mark(true)
		w.ask()
		w.node.plans = []node.Plan{drainA}
		w.withPod()
		w.reconcile()
		w.requirePhase(refitv1.PhaseDraining)
		w.mark(false)
		w.reconcile()
		st := w.requirePhase(refitv1.PhaseSucceeded)
		require.Equal(t, applied, w.update().Spec.Digest)
		require.Equal(t, applied, st.ObservedDigest)
		require.True(t, drift.UpToDate(w.update()))
		require.Nil(t, st.Slot)
		require.Contains(t, st.Message, "nothing was changed on the node")
		w.requireFree(false)
		require.Zero(t, w.reconcile(), "that is its end")
		w.mark(true)
		w.ask()
		require.Equal(t, w.digest(), w.update().Spec.Digest, "asked again, it begins again")
	})
	t.Run("but not while the Machine is paused", func(t *testing.T) {
		w := newWorld(t)
		w.ask()
		w.mark(false)
		w.machine(func(m *clusterv1.Machine) {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.PausedAnnotation, "")
		})
		w.reconcile()
		w.requireWaiting(refitv1.ReasonPaused, "")
	})
	t.Run("when the cluster can be asked to take back what is there", func(t *testing.T) {
		w := draining(t)
		w.mark(false)
		w.workload.Err = workload.ErrUnavailable
		require.Positive(t, w.reconcile().RequeueAfter)
		w.requireWaiting(refitv1.ReasonWithdrawn, "no longer asks")
		w.workload.Err = nil
		w.reconcile()
		w.requireGone()
		w.requireFree(false)
	})
}

// Work that has begun ends first, and then the update says what the node has.
func TestAnUpdateIsWithdrawnWhileTheNodeWorks(t *testing.T) {
	for name, tc := range map[string]struct {
		last     node.Status
		says     string
		cordoned bool
	}{
		"it ends":             {node.Status{State: node.Succeeded}, "the node has made its changes", true},
		"it fails":            {node.Status{State: node.Failed, Message: "no space"}, "had failed: no space; the node stays cordoned", true},
		"it is rolled back":   {node.Status{State: node.Failed, RolledBack: true, Token: 7}, "shows again what it showed before", false},
		"nobody works on it":  {node.Status{State: node.Running, Interrupted: true}, "may have a part of the specs", true},
		"it has lost a track": {node.Status{State: node.Idle}, "may have a part of the specs", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := cutOff(t, drainA)
			w.mark(false)
			w.node.applied = []node.Status{running}
			for range 2 {
				w.reconcile()
				w.requireKept(refitv1.ReasonWithdrawn)
			}
			w.node.applied = []node.Status{tc.last}
			w.reconcile()
			st := w.requirePhase(refitv1.PhaseFailed)
			require.Equal(t, refitv1.ReasonWithdrawn, st.Reason)
			require.Contains(t, st.Message, tc.says)
			require.Contains(t, st.Message, "delete the Machine")
			require.NotNil(t, st.Slot)
			w.requireFree(tc.cordoned)
			require.NotContains(t, w.node.calls, "apply")

			w.annotate(refitv1.RetryAnnotation)
			w.reconcile()
			require.Equal(t, refitv1.ReasonWithdrawn, w.requirePhase(refitv1.PhaseFailed).Reason, "nobody asks for another try")
			w.mark(true)
			w.clock.Step(time.Second)
			w.annotate(refitv1.RetryAnnotation)
			w.node.plans, w.node.applied = []node.Plan{settled}, []node.Status{{State: node.Succeeded}}
			w.reconcile()
			w.requirePhase(refitv1.PhaseSucceeded)
		})
	}
}

// Cluster API no longer asks when the node is about to be changed.
func TestAnUpdateIsWithdrawnAtTheLastMoment(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.plans, w.node.applied = []node.Plan{writeA}, []node.Status{succeeded}
	w.node.before = func(verb string) {
		if verb == "plan" {
			w.mark(false)
		}
	}
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWithdrawn, "no longer asks")
	w.reconcile()
	w.requireGone()
	require.Equal(t, []string{"plan"}, w.node.calls)
}

// A policy asks for a repair, and Cluster API does not.
func TestARepairIsNotWithdrawn(t *testing.T) {
	w := newWorld(t)
	w.succeed()
	mu := w.update()
	u := &update{Reconciler: w.reconciler, mu: mu}
	require.NoError(t, u.set(t.Context(), func(s *refitv1.MachineUpdateStatus) { u.repairBegins(s, "it is repaired") }))
	w.reconciler.Disruptions = onDrift(w.reconciler.Disruptions, refitv1.RepairDrift)
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	require.Contains(t, w.node.calls, "apply")
}

// reads counts what is read live.
func (w *world) reads() *int {
	n := 0
	w.store.Live = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			n++
			return c.Get(ctx, key, obj, opts...)
		},
	})
	return &n
}

// Whoever asks for what is not there changes nothing, is told nothing, and causes few reads.
func TestRequestsThatAreNotClusterAPIs(t *testing.T) {
	request := func(w *world, digest string) string {
		p, err := w.store.Update(w.t.Context(), key.Namespace, key.Name, digest)
		require.NoError(w.t, err)
		require.False(w.t, p.Done)
		require.Positive(w.t, p.RetryAfter)
		return p.Message
	}
	t.Run("for a Machine that is not updated", func(t *testing.T) {
		w := newWorld(t)
		w.mark(false)
		n := w.reads()
		for _, digest := range []string{"garbage", w.digest()} {
			require.Contains(t, request(w, digest), "not being updated in place")
			w.requireGone()
		}
		require.Zero(t, *n)
	})
	t.Run("for one that was", func(t *testing.T) {
		w := newWorld(t)
		digest := w.succeed()
		n, before := w.reads(), w.update()
		for _, digest := range []string{"garbage", digest} {
			require.Contains(t, request(w, digest), "not being updated in place")
		}
		require.Equal(t, before, w.update())
		require.Zero(t, *n)
	})
	t.Run("for one that is, with other specs", func(t *testing.T) {
		w := newWorld(t)
		w.ask()
		n, before := w.reads(), w.update()
		for i := range 100 {
			require.Contains(t, request(w, fmt.Sprint("garbage ", i)), "not those that the Machine and its objects have now")
		}
		require.Equal(t, before, w.update())
		require.Less(t, *n, 6)
		w.clock.Step(refusedFor)
		require.Contains(t, request(w, "garbage"), "not those")
		w.change()
		stale := before.Spec.Digest
		w.clock.Step(refusedFor)
		require.False(t, w.ask(), "the right one is recorded")
		require.Equal(t, w.digest(), w.update().Spec.Digest)
		before = w.update()
		require.Contains(t, request(w, stale), "not those")
		require.Equal(t, before, w.update())
	})
	t.Run("what the cache says is not enough", func(t *testing.T) {
		w, cache := newWorld(t), newWorld(t)
		w.mark(false)
		w.store.Client = cache.Client
		require.Contains(t, request(w, w.digest()), "not being updated in place")
		cache.requireGone()
		require.NoError(t, w.Delete(t.Context(), &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}))
		require.Contains(t, request(w, "garbage"), "not being updated in place")
	})
	t.Run("when nothing can be read", func(t *testing.T) {
		w := newWorld(t)
		w.store.Live = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return errRefused
			},
		})
		_, err := w.store.Update(t.Context(), key.Namespace, key.Name, w.digest())
		require.ErrorIs(t, err, errRefused)
		w.requireGone()
	})
}

func TestRememberCRDs(t *testing.T) {
	w := newWorld(t)
	n := w.reads()
	live := RememberCRDs(w.store.Live, w.clock)
	m, spec, err := readMachine(t.Context(), w, key)
	require.NoError(t, err)
	count := func() int {
		before := *n
		_, err := readSpecs(t.Context(), live, m, spec)
		require.NoError(t, err)
		return *n - before
	}
	require.Equal(t, 3, count(), "a definition, and two objects")
	require.Equal(t, 2, count())
	w.clock.Step(crdMemory)
	require.Equal(t, 3, count())
}
