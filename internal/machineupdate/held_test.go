package machineupdate

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/node"
)

// rewords is a Gate that tells the same in other words.
type rewords struct {
	Gate
	words string
}

func (g rewords) Ask(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) (changemanagement.Decision, error) {
	d, err := g.Gate.Ask(ctx, machine, mu)
	d.Message += g.words
	return d, err
}

// heldNightly has an update wait for its window, and returns its resourceVersion.
func heldNightly(t *testing.T) (*world, string) {
	w := under(t, restartA, nightly())
	w.reconcile()
	mu := w.requireWaiting(refitv1.ReasonWindow, "opens at 2026-10-03T22:00:00Z")
	require.NotEmpty(t, mu.HeldDigest)
	return w, w.update().ResourceVersion
}

// TestWordsMakeNoDifference demands that a message which would read otherwise has nobody look again.
func TestWordsMakeNoDifference(t *testing.T) {
	w, before := heldNightly(t)
	w.reconciler.Gate = rewords{w.reconciler.Gate, "; in other words"}
	w.reconcile()
	require.Equal(t, before, w.update().ResourceVersion)
}

// TestAnotherInstantIsShown demands that a window which opens later is, though the reason is the same.
func TestAnotherInstantIsShown(t *testing.T) {
	w, _ := heldNightly(t)
	was := w.update().Status.HeldDigest
	later := nightly()
	later.Spec.MaintenanceSchedule.Permit[0].StartTime = "22:30"
	later.ResourceVersion = resourceVersion(t, w, later.Name)
	require.NoError(t, w.Update(t.Context(), later))
	w.readPolicies()
	w.reconcile()
	require.NotEqual(t, was, w.requireWaiting(refitv1.ReasonWindow, "opens at 2026-10-03T22:30:00Z").HeldDigest)
}

// TestWhatAnEarlierVersionHasShownComesAtItsTurn has updates wait that were written before there was a digest: all would be written at once else.
func TestWhatAnEarlierVersionHasShownComesAtItsTurn(t *testing.T) {
	w, _ := heldNightly(t)
	mu := w.update()
	mu.Status.HeldDigest = ""
	require.NoError(t, w.Status().Update(t.Context(), mu))
	for range lateAtOnce {
		w.reconciler.late.turn(types.NamespacedName{Name: string(rune('a' + len(w.reconciler.late.turns)))}, w.clock.Now())
	}
	result := w.reconcile()
	require.Positive(t, result.RequeueAfter)
	require.Empty(t, w.update().Status.HeldDigest)

	w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	w.reconcile()
	require.NotEmpty(t, w.update().Status.HeldDigest)
	require.NotContains(t, w.reconciler.late.turns, key)
}

// TestNothingHoldsWhatHasEnded demands that the digest goes with what it is about.
func TestNothingHoldsWhatHasEnded(t *testing.T) {
	w, _ := heldNightly(t)
	w.clock.SetTime(w.clock.Now().Add(2 * 3600e9))
	w.restart()
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseSucceeded)
	require.Empty(t, st.HeldDigest)
}

// TestWhatWaitsForItsTurnDoesNotMissItsWindow: what an earlier version has shown may have its turn long after the window opens.
func TestWhatWaitsForItsTurnDoesNotMissItsWindow(t *testing.T) {
	w, _ := heldNightly(t)
	mu := w.update()
	mu.Status.HeldDigest = ""
	require.NoError(t, w.Status().Update(t.Context(), mu))
	opens := time.Date(2026, time.October, 3, 22, 0, 0, 0, time.UTC)
	w.clock.SetTime(opens.Add(-time.Minute))
	for i := range lateAtOnce + 3600*latePerSecond {
		w.reconciler.late.turn(types.NamespacedName{Name: strconv.Itoa(i)}, w.clock.Now())
	}
	result := w.reconcile()
	require.Empty(t, w.update().Status.HeldDigest, "it is not its turn")
	require.LessOrEqual(t, result.RequeueAfter, time.Minute)
	require.Positive(t, result.RequeueAfter)

	w.clock.SetTime(opens)
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
}

// TestAPlanOfAnEarlierVersionIsMadeAgain: what is not known of it would have the update wait for ever for a window as long as expectedDuration.
func TestAPlanOfAnEarlierVersionIsMadeAgain(t *testing.T) {
	policy, seconds := nightly(), int64(600)
	policy.Spec.ExpectedDuration = "2h" // no window is as long
	w := under(t, restartA, policy)
	policy.Status.Durations = []refitv1.MeasuredDuration{{Role: refitv1.WorkerRole, Disruption: "Restart", Seconds: &seconds}}
	require.NoError(t, w.Status().Update(t.Context(), policy))
	w.reconcile()
	mu := w.update()
	require.NotNil(t, mu.Status.Plan)
	mu.Status.Plan.WorstAction, mu.Status.HeldDigest = "", ""
	require.NoError(t, w.Status().Update(t.Context(), mu))
	w.node.plans = []node.Plan{restartA, settled}
	w.clock.SetTime(time.Date(2026, time.October, 3, 22, 1, 0, 0, time.UTC))
	w.restart()
	for range 3 {
		w.reconcile()
	}
	w.requirePhase(refitv1.PhaseSucceeded)
}
