package machineupdate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drift"
)

func TestWhenNodesAreCompared(t *testing.T) {
	w := updated(t, refitv1.ReportDrift)
	w.shows()
	require.Zero(t, w.check(), "without an interval nobody looks")
	w.checker.Interval = time.Hour
	after := w.check().RequeueAfter
	require.True(t, after > 0 && after <= time.Hour, after)
	require.Empty(t, w.node.calls, "what was missed before this process began is not made up for")
	w.clock.Step(after)
	require.Equal(t, time.Hour, w.check().RequeueAfter.Round(2*time.Second))
	require.Equal(t, []string{"drift"}, w.node.calls)
	w.clock.Step(time.Minute)
	require.Positive(t, w.check().RequeueAfter)
	require.Len(t, w.node.calls, 1)
}

func TestOnlyWhatIsUpToDateIsCompared(t *testing.T) {
	for name, change := range map[string]func(*refitv1.MachineUpdate){
		"under way":       func(mu *refitv1.MachineUpdate) { mu.Status.Phase = refitv1.PhaseApplying },
		"failed":          func(mu *refitv1.MachineUpdate) { mu.Status.Phase = refitv1.PhaseFailed },
		"for other specs": func(mu *refitv1.MachineUpdate) { mu.Status.ObservedDigest = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			w := updated(t, refitv1.ReportDrift)
			mu := w.update()
			change(mu)
			require.NoError(t, w.Status().Update(t.Context(), mu))
			w.look()
			require.Empty(t, w.node.calls)
		})
	}
}

// TestNobodyConnectsWhereAPolicyHoldsAll: such a policy keeps refit off the node also for looking.
func TestNobodyConnectsWhereAPolicyHoldsAll(t *testing.T) {
	policy := nightly()
	policy.Spec.Hold = refitv1.HoldAll
	w := updated(t, refitv1.ReportDrift)
	w.shows()
	require.NoError(t, w.Create(t.Context(), policy))
	w.readPolicies()
	w.checker.Interval = time.Minute
	w.clock.Step(2 * time.Minute)
	require.Equal(t, drift.Skipped, w.check().RequeueAfter)
	require.Empty(t, w.node.calls)
	w.look()
	require.Empty(t, w.node.calls)
	require.Equal(t, refitv1.ReasonWindow, w.condition().Reason, "who asks is told")

	w.clock.SetTime(time.Date(2026, 10, 3, 22, 30, 0, 0, time.UTC))
	w.check()
	require.Equal(t, []string{"drift"}, w.node.calls)
	require.Equal(t, refitv1.DriftNone, w.condition().Reason)
}

// noLive is an API server that nobody is to ask.
type noLive struct{ client.Reader }

var errAsked = errors.New("the API server was asked")

func (noLive) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errAsked
}

func TestASkippedComparisonAsksCachesOnly(t *testing.T) {
	for name, arrange := range map[string]func(*driftWorld){
		"a paused Machine": func(w *driftWorld) {
			w.machine(func(m *clusterv1.Machine) { m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		},
		"a paused Cluster": func(w *driftWorld) {
			var c clusterv1.Cluster
			require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "c1"}, &c))
			c.Spec.Paused = ptr.To(true)
			require.NoError(w.t, w.Update(w.t.Context(), &c))
		},
		"a Machine that goes": func(w *driftWorld) { w.deleteMachine() },
		"a policy that holds all": func(w *driftWorld) {
			policy := nightly()
			policy.Spec.Hold = refitv1.HoldAll
			require.NoError(w.t, w.Create(w.t.Context(), policy))
			w.readPolicies()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := updated(t, refitv1.ReportDrift)
			arrange(w)
			w.checker.Interval = time.Minute
			w.clock.Step(2 * time.Minute)
			w.reconciler.Live, w.checker.Live = noLive{}, noLive{}
			require.Equal(t, drift.Skipped, w.check().RequeueAfter)
			require.Empty(t, w.node.calls)

			w.annotate(refitv1.CheckDriftAnnotation)
			_, err := w.checker.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			require.ErrorIs(t, err, errAsked, "who asks is told what holds now")
		})
	}
}

func TestAPolicyThatHoldsWhatDisturbsDoesNotKeepFromLooking(t *testing.T) {
	w := updated(t, refitv1.ReportDrift)
	w.shows()
	require.NoError(t, w.Create(t.Context(), nightly()))
	w.readPolicies()
	w.look()
	require.Equal(t, []string{"drift"}, w.node.calls)
}
