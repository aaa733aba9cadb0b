package machineupdate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// weeklyWithDeadline is open on Sundays, and lets changes wait for an hour. The world's clock says Saturday, 20:00.
func weeklyWithDeadline(at refitv1.AtDeadline) *refitv1.ChangeManagementPolicy {
	p := nightly()
	p.Spec.MaintenanceSchedule.Permit[0].Recurrence = "FREQ=WEEKLY;BYDAY=SU"
	p.Spec.Deadline = &refitv1.Deadline{After: "1h", WarnBefore: "30m", AtDeadline: at}
	return p
}

func (w *world) deadlineTold() string {
	if c := meta.FindStatusCondition(w.update().Status.Conditions, refitv1.DeadlineNearCondition); c != nil {
		return string(c.Status) + " " + c.Reason
	}
	return ""
}

func TestAnUpdateTellsOfItsDeadlineAndStartsThen(t *testing.T) {
	for name, all := range map[string]bool{"Material": false, "All": true} {
		t.Run(name, func(t *testing.T) {
			policy := weeklyWithDeadline(refitv1.OpenAtDeadline)
			if all {
				policy.Spec.Hold = refitv1.HoldAll
			}
			w := under(t, restartA, policy)
			w.node.plans = []node.Plan{restartA}
			asked := w.clock.Now()
			steady := func() {
				t.Helper()
				before := w.update().ResourceVersion
				for range 3 {
					require.Positive(t, w.reconcile().RequeueAfter)
				}
				require.Equal(t, before, w.update().ResourceVersion, "nothing is written")
			}
			result := w.reconcile()
			mu := w.update()
			require.Equal(t, refitv1.PhaseWaiting, mu.Status.Phase)
			require.Equal(t, asked.Unix(), mu.Status.WantedSince.Unix())
			require.Equal(t, asked.Add(time.Hour).Unix(), mu.Status.Deadline.Unix())
			require.LessOrEqual(t, result.RequeueAfter, 30*time.Minute)
			require.Empty(t, w.deadlineTold())
			steady()

			w.change() // other specs begin to wait where those before have been
			w.clock.SetTime(asked.Add(30 * time.Minute))
			require.False(t, w.ask())
			result = w.reconcile()
			mu = w.update()
			require.Equal(t, "True Waiting", w.deadlineTold())
			require.Contains(t, mu.Status.Message, "policy nightly has a deadline for this change at 2026-10-03T21:00:00Z (Waiting): the change has been wanted since 2026-10-03T20:00:00Z; from then on it does not wait for windows of the policy (atDeadline: Open)")
			require.LessOrEqual(t, result.RequeueAfter, 30*time.Minute)
			require.Len(t, w.eventsWith("ChangeDeadlineNear"), 1)
			steady()
			require.Empty(t, w.eventsWith("ChangeDeadlineNear"), "it is told once")

			w.moveAll()
			w.restart()
			w.ask()
			w.reconcile()
			require.Equal(t, asked.Unix(), w.update().Status.WantedSince.Unix(), "a move takes it along")

			w.node.plans, w.node.applied = []node.Plan{restartA, {}}, []node.Status{succeeded}
			w.clock.SetTime(asked.Add(time.Hour))
			w.reconcile()
			mu = w.update()
			require.Equal(t, refitv1.PhaseSucceeded, mu.Status.Phase, mu.Status.Message)
			require.Equal(t, "True DeadlinePassed", permittedReason(mu))
			require.Equal(t, "DeadlinePassed", mu.Status.Admission.Reason)
			require.Empty(t, w.deadlineTold())
			require.Nil(t, mu.Status.Deadline)
		})
	}
}

func TestADeadlineThatHoldsIsOnlyTold(t *testing.T) {
	w := under(t, restartA, weeklyWithDeadline(refitv1.HoldAtDeadline))
	w.clock.SetTime(w.clock.Now().Add(2 * time.Hour))
	w.reconcile()
	require.Empty(t, w.deadlineTold(), "it is wanted since refit has seen it")
	w.clock.SetTime(w.clock.Now().Add(2 * time.Hour))
	w.reconcile()
	require.Equal(t, "True Waiting", w.deadlineTold())
	require.Contains(t, w.update().Status.Message, "it goes on to wait then, so somebody has to let it start")
	require.Equal(t, "False OutsideWindow", permittedReason(w.update()))

	policy := weeklyWithDeadline("")
	policy.Spec.Deadline, policy.ResourceVersion = nil, resourceVersion(t, w, policy.Name)
	require.NoError(t, w.Update(t.Context(), policy))
	w.readPolicies()
	w.reconcile()
	require.Empty(t, w.deadlineTold(), "a deadline that is taken away is told no more")
	require.Nil(t, w.update().Status.Deadline)
}

func TestTheNextChangeHasADeadlineOfItsOwn(t *testing.T) {
	w := under(t, writeA, weeklyWithDeadline(refitv1.OpenAtDeadline))
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	w.clock.SetTime(w.clock.Now().Add(24 * time.Hour))
	w.change()
	w.node.plans = []node.Plan{restartA}
	w.ask()
	w.reconcile()
	require.Equal(t, w.clock.Now().Add(time.Hour).Unix(), w.update().Status.Deadline.Unix())
}

// TestAChangeThatIsNeverWanted demands that a deadline beyond the end of time is none: no API server takes it.
func TestAChangeThatIsNeverWanted(t *testing.T) {
	w := under(t, restartA, weeklyWithDeadline(refitv1.OpenAtDeadline))
	var machine clusterv1.Machine
	require.NoError(t, w.Get(t.Context(), key, &machine))
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, refitv1.NotBeforeAnnotation, "9999-12-31T23:59:59Z")
	require.NoError(t, w.Update(t.Context(), &machine))
	w.reconcile()
	require.Equal(t, "False NotBefore", permittedReason(w.update()))
	require.Nil(t, w.update().Status.Deadline)
}
