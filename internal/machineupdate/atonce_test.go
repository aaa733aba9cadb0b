package machineupdate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
)

// counted has the requests be counted that the reconciler makes, by what they do. Reads of Client are those of a cache, and no requests.
func (w *world) counted() map[string]int {
	n := map[string]int{}
	w.reconciler.Live = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			n["get"]++
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			n["list"]++
			return c.List(ctx, list, opts...)
		},
	})
	w.reconciler.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			n["patch"]++
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			n["status"]++
			return c.SubResource(sub).Update(ctx, obj, opts...)
		},
	})
	return n
}

func holdsAll() *refitv1.ChangeManagementPolicy {
	p := nightly()
	p.Spec.Hold = refitv1.HoldAll
	return p
}

// TestWhatIsHeldAltogetherTakesOneWrite from when it is asked for until it waits, once this server knows the policies that there are.
func TestWhatIsHeldAltogetherTakesOneWrite(t *testing.T) {
	w := under(t, restartA, holdsAll())
	w.reconcile()
	first := w.requireWaiting(refitv1.ReasonWindow, "policy nightly: OutsideWindow; opens at 2026-10-03T22:00:00Z")
	w.change()
	w.ask()
	w.eventsWith("")
	n := w.counted()
	require.Equal(t, w.update().Spec.Digest, w.digest())
	require.Positive(t, w.reconcile().RequeueAfter)
	require.Equal(t, map[string]int{"status": 1}, n)
	require.Empty(t, w.events.Events, "nor an Event")
	st := w.requireWaiting(refitv1.ReasonWindow, "policy nightly: OutsideWindow; opens at 2026-10-03T22:00:00Z")
	require.NotEqual(t, first.ObservedDigest, st.ObservedDigest)
	require.Equal(t, "False OutsideWindow", permittedReason(w.update()))
	require.Empty(t, w.node.calls)
	for range 3 {
		w.reconcile()
	}
	require.Equal(t, map[string]int{"status": 1}, n, "nor does it take any more as long as it waits")

	w.clock.SetTime(w.clock.Now().Add(2 * time.Hour))
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
}

// TestWhatIsNotOnlyHeld has something else be told about an update that a policy holds back.
func TestWhatIsNotOnlyHeld(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange func(*world)
		phase   refitv1.Phase
		reason  string
	}{
		"paused":        {func(w *world) { w.pause(true) }, refitv1.PhaseWaiting, refitv1.ReasonPaused},
		"taken":         {annotateWith(clusterv1.DeleteMachineAnnotation), refitv1.PhaseWaiting, refitv1.ReasonTaken},
		"leaving":       {func(w *world) { w.deleteMachine() }, refitv1.PhaseWaiting, refitv1.ReasonDeleting},
		"to be retried": {func(w *world) { w.annotate(refitv1.RetryAnnotation) }, refitv1.PhaseWaiting, refitv1.ReasonWindow},
	} {
		t.Run(name, func(t *testing.T) {
			w := under(t, restartA, holdsAll())
			w.reconcile()
			w.change()
			w.ask()
			tc.arrange(w)
			n := w.counted()
			w.reconcile()
			require.Equal(t, tc.reason, w.requirePhase(tc.phase).Reason)
			require.Positive(t, n["get"], "it is looked at")
		})
	}
}

// TestACacheThatIsBehindHoldsNothing has a server take an update for one that was just asked for, of which another one has recorded more.
func TestACacheThatIsBehindHoldsNothing(t *testing.T) {
	w := under(t, restartA, holdsAll())
	w.reconcile()
	w.change()
	w.ask()
	stale := w.update()
	other := w.update()
	other.Status.ObservedDigest, other.Status.Phase, other.Status.Message = other.Spec.Digest, refitv1.PhaseApplying, "at work"
	require.NoError(t, w.Status().Update(t.Context(), other))
	result, held, err := w.reconciler.heldAtOnce(t.Context(), stale)
	require.NoError(t, err)
	require.True(t, held)
	require.Equal(t, time.Second, result.RequeueAfter)
	require.Equal(t, "at work", w.requirePhase(refitv1.PhaseApplying).Message)
}

// TestWhenWhatIsHeldLooksAgain demands that it is when a window opens, and else seldom, but for what tells nobody.
func TestWhenWhatIsHeldLooksAgain(t *testing.T) {
	soon := nightly()
	soon.Spec.MaintenanceSchedule.Permit[0].StartTime = "20:03"
	full := nightly()
	full.Spec.Strategy, full.Spec.MaintenanceSchedule, full.Spec.Budget = "Permissive", nil, refitv1.Budget{StopAfterFailures: 1}
	for name, tc := range map[string]struct {
		policy      *refitv1.ChangeManagementPolicy
		arrange     func(*world)
		least, most time.Duration
	}{
		"a window that is far":  {nightly(), nil, retryHeld * 3 / 4, retryHeld},
		"a window that is near": {soon, nil, 3 * time.Minute, 3 * time.Minute},
		"a control plane": {nightly(), func(w *world) {
			w.machine(func(m *clusterv1.Machine) { m.Labels[clusterv1.MachineControlPlaneLabel] = "" })
		}, retryUnwatched, retryUnwatched},
		"a stop that ends": {nightly(), func(w *world) {
			w.clock.SetTime(w.clock.Now().Add(2 * time.Hour)) // the window is open
			w.machine(func(m *clusterv1.Machine) {
				m.Annotations = map[string]string{refitv1.RestrictiveUntilAnnotation: w.clock.Now().Add(2 * time.Minute).Format(time.RFC3339)}
			})
		}, 2 * time.Minute, 2 * time.Minute},
		"a budget": {full, func(w *world) {
			other := managementtest.Machine(key.Namespace, "m2", "c1")
			require.NoError(w.t, w.Create(w.t.Context(), other))
			require.NoError(w.t, w.Create(w.t.Context(), managementtest.MachineUpdate(other, func(mu *refitv1.MachineUpdate) {
				mu.Status.Phase = refitv1.PhaseFailed
			})))
		}, retryUnwatched, retryUnwatched},
	} {
		t.Run(name, func(t *testing.T) {
			w := under(t, restartA, tc.policy)
			if tc.arrange != nil {
				tc.arrange(w)
			}
			for range 2 { // at first, and by what caches say
				after := w.reconcile().RequeueAfter
				require.GreaterOrEqual(t, after, tc.least, w.update().Status.Message)
				require.LessOrEqual(t, after, tc.most, w.update().Status.Message)
			}
		})
	}
}
