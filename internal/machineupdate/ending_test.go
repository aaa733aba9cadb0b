package machineupdate

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// loses has the first write of an end, to the record or to the status, not be answered. It is made or not.
func (w *world) loses(phase refitv1.Phase, record, made bool) {
	lost := false
	answer := func(this bool, at refitv1.Phase, write func() error) error {
		if !this || at != phase || lost {
			return write()
		}
		if lost = true; made {
			require.NoError(w.t, write())
		}
		return apierrors.NewServerTimeout(refitv1.GroupVersion.WithResource("machineupdates").GroupResource(), "update", 1)
	}
	w.reconciler.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			at := refitv1.Phase("")
			if mu, ok := o.(*refitv1.MachineUpdate); ok {
				at = mu.Status.Phase
			}
			return answer(!record, at, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			at := refitv1.Phase("")
			if mu, ok := o.(*refitv1.MachineUpdate); ok && mu.Spec.Record != nil {
				at = mu.Spec.Record.Status.Phase
			}
			return answer(record, at, func() error { return c.Patch(ctx, o, p, opts...) })
		},
	})
}

// TestAnEndIsToldOnce whichever write is not answered, and whoever leads next.
func TestAnEndIsToldOnce(t *testing.T) {
	for name, tc := range map[string]struct{ record, made, another bool }{
		"a status that was written":                             {made: true},
		"a status that was not":                                 {},
		"a status that was not, by another server":              {another: true},
		"a record that was written":                             {record: true, made: true},
		"a record that was written, by another server":          {record: true, made: true, another: true},
		"a record that was not, with another end soon after it": {record: true},
	} {
		for phase, end := range map[refitv1.Phase]node.Status{
			refitv1.PhaseSucceeded: succeeded, refitv1.PhaseFailed: {State: node.Failed, Message: "the unit does not start", Token: 9},
		} {
			t.Run(name+", "+string(phase), func(t *testing.T) {
				w := planned(t, drainA)
				w.node.applied = []node.Status{end}
				w.loses(phase, tc.record, tc.made)
				_, _ = w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
				if tc.another {
					w.reconciler.endings.Clear()
					w.reconciler.Metrics = NewMetrics(prometheus.NewRegistry())
				}
				w.node.plans = []node.Plan{settled}
				for range 4 {
					w.reconcile()
				}
				w.requirePhase(phase)
				require.Len(t, w.eventsWith("InPlaceUpdate"+string(phase)), 1)
				require.Equal(t, 1.0, testutil.ToFloat64(w.reconciler.Metrics.total.WithLabelValues(string(phase))))
				require.Equal(t, 1, testutil.CollectAndCount(w.reconciler.Metrics.total), "nothing else has ended")
			})
		}
	}
}

// TestWhatHasEndedElsewhereIsNotTold moves updates that have ended.
func TestWhatHasEndedElsewhereIsNotTold(t *testing.T) {
	w := failed(t, false)
	require.Len(t, w.eventsWith("InPlaceUpdateFailed"), 1)
	w.moveAll()
	w.reconciler.Metrics = NewMetrics(prometheus.NewRegistry())
	w.reconcile()
	w.requirePhase(refitv1.PhaseFailed)
	require.Empty(t, w.eventsWith("InPlaceUpdateFailed"))
	require.Zero(t, testutil.CollectAndCount(w.reconciler.Metrics.total))
}

func TestATryThatIsAbandonedIsToldOnce(t *testing.T) {
	w := failed(t, false)
	w.hold(true)
	w.annotate(refitv1.RetryAnnotation)
	w.reconcile()
	w.eventsWith("")
	w.loses(refitv1.PhaseFailed, false, true)
	w.annotate(refitv1.AbandonAnnotation)
	_, _ = w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	for range 3 {
		w.reconcile()
	}
	require.Equal(t, abandoned, w.requirePhase(refitv1.PhaseFailed).Reason)
	require.Len(t, w.eventsWith("InPlaceUpdateAbandoned"), 1)
}
