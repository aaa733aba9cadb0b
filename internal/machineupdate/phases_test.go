package machineupdate

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/workload"
)

// open are the phases in which a server may end and leave an update to the next.
var open = []refitv1.Phase{
	refitv1.PhasePending, refitv1.PhaseWaiting, refitv1.PhaseStaging, refitv1.PhaseDraining, refitv1.PhaseApplying, refitv1.PhaseVerifying,
}

// endsIn has the server end while the update shows a phase, and returns the phases that the next one enters.
func (w *world) endsIn(phase refitv1.Phase) *[]refitv1.Phase {
	mu := w.update()
	genuine := mu.Status.Phase == phase
	mu.Status.Phase, mu.Status.Reason = phase, ""
	require.NoError(w.t, w.Status().Update(w.t.Context(), mu))
	shown := []refitv1.Phase{phase}
	w.reconciler.Client = w.Client
	w.reconciler.enters = func(from, next refitv1.Phase) {
		if genuine {
			entered.note(from, next)
		}
		if next != shown[len(shown)-1] {
			shown = append(shown, next)
		}
	}
	return &shown
}

// requireNext demands which phase comes after the one in which a server has ended.
func requireNext(t *testing.T, want refitv1.Phase, shown []refitv1.Phase) {
	t.Helper()
	require.Greater(t, len(shown), 1, "%s is left", shown)
	require.Equal(t, want, shown[1], shown)
}

// fromEach has servers end in each phase but the one that comes then.
func fromEach(t *testing.T, next refitv1.Phase, run func(t *testing.T, from refitv1.Phase) (shown []refitv1.Phase)) {
	for _, from := range open {
		if from != next {
			t.Run(string(from), func(t *testing.T) { requireNext(t, next, run(t, from)) })
		}
	}
}

func TestOtherSpecsInEachPhase(t *testing.T) {
	fromEach(t, refitv1.PhasePending, func(t *testing.T, from refitv1.Phase) []refitv1.Phase {
		w := newWorld(t)
		w.ask()
		w.node.dialErr = errRefused
		w.reconcile()
		shown := w.endsIn(from)
		w.change()
		w.ask()
		w.reconcile()
		require.Equal(t, w.update().Spec.Digest, w.update().Status.ObservedDigest)
		return *shown
	})
}

func TestAWithdrawalInEachPhase(t *testing.T) {
	fromEach(t, refitv1.PhaseSucceeded, func(t *testing.T, from refitv1.Phase) []refitv1.Phase {
		w := newWorld(t)
		before := w.succeed()
		w.change()
		w.mark(true)
		w.ask()
		w.node.dialErr = errRefused
		w.reconcile()
		shown := w.endsIn(from)
		w.mark(false)
		w.reconcile()
		require.Equal(t, before, w.update().Spec.Digest, "the node has what it had")
		return *shown
	})
}

func TestAWithdrawalOfWhatWasBegunInEachPhase(t *testing.T) {
	fromEach(t, refitv1.PhaseFailed, func(t *testing.T, from refitv1.Phase) []refitv1.Phase {
		w := newWorld(t)
		w.halfWay()
		shown := w.endsIn(from)
		w.mark(false)
		w.node.applied = []node.Status{succeeded}
		w.reconcile()
		require.Equal(t, refitv1.ReasonWithdrawn, w.requirePhase(refitv1.PhaseFailed).Reason)
		return *shown
	})
}

// TestSomethingElseIsToBeFetched has the disk of a node lose what was fetched.
func TestSomethingElseIsToBeFetched(t *testing.T) {
	for name, from := range map[string]func(*world) refitv1.Phase{
		"in a drain": func(w *world) refitv1.Phase {
			w.withPod()
			w.reconcile()
			return refitv1.PhaseDraining
		},
		"before it was verified": func(w *world) refitv1.Phase {
			w.endsWhileItVerifies()
			return refitv1.PhaseVerifying
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := under(t, drainA)
			phase := from(w)
			w.requirePhase(phase)
			w.sourced(mirror(refitv1.EarlyStaging))
			again := drainA
			again.Stage = unstaged.Stage
			w.node.plans, w.node.staged, w.node.calls = []node.Plan{again}, []node.StageStatus{fetching}, nil
			shown := w.endsIn(phase)
			w.reconcile()
			requireNext(t, refitv1.PhaseStaging, *shown)
			require.NotContains(t, w.node.calls, "apply")
		})
	}
}

// endsWhileItVerifies has the server end while it asks the node whether it shows what is desired.
func (w *world) endsWhileItVerifies() {
	w.t.Helper()
	ctx, end := context.WithCancel(w.t.Context())
	w.node.before = func(verb string) {
		switch {
		case verb == "apply":
			w.clock.Step(2 * tellEvery) // so that what comes then is written by itself
		case verb == "plan" && slices.Contains(w.node.calls, "apply"):
			w.node.err = &node.AgentError{Reason: node.ReasonBusy, Message: "the connection is lost"}
			end()
		}
	}
	_, err := w.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	require.ErrorIs(w.t, err, context.Canceled)
	w.node.before, w.node.err = nil, nil
}

// TestARollbackOfWhatHasSucceededWaits has other specs come, and be rolled back, before anybody has looked at them.
func TestARollbackOfWhatHasSucceededWaits(t *testing.T) {
	w := failedWorker(t)
	w.askRollback("1 alice")
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	w.applied(badContent)
	w.ask()
	w.askRollback("2 alice")
	w.Client = interceptor.NewClient(w.Client.(client.WithWatch), failApply(func() error { return apierrors.NewInternalError(errors.New("the webhook is away")) }))
	shown := w.endsIn(refitv1.PhaseSucceeded)
	w.reconcile()
	requireNext(t, refitv1.PhaseWaiting, *shown)
	require.Contains(t, w.update().Status.Message, "the webhook is away")
}

// TestAWithdrawalOfWhatHasFailedWaits has other specs be asked for after a failure, and no longer, while nobody can be asked who has the node.
func TestAWithdrawalOfWhatHasFailedWaits(t *testing.T) {
	w := failed(t, false)
	w.change()
	w.ask()
	w.mark(false)
	w.workload.Err = workload.ErrUnavailable
	shown := w.endsIn(refitv1.PhaseFailed)
	w.reconcile()
	requireNext(t, refitv1.PhaseWaiting, *shown)

	w.workload.Err = nil
	w.reconcile()
	require.Equal(t, refitv1.ReasonWithdrawn, w.requirePhase(refitv1.PhaseFailed).Reason)
}
