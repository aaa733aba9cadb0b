package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

func TestNextOfLiveMachinesByChange(t *testing.T) {
	c := liveFleet(t)
	var p refitv1.ChangeManagementPolicy
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "saturdays"}, &p))
	p.Spec.MaintenanceSchedule.Permit = append(p.Spec.MaintenanceSchedule.Permit, schedule.Permit{
		Recurrence: "FREQ=DAILY", StartTime: "02:00", Duration: "1h", Changes: &schedule.PermittedChanges{MaxDisruption: "Reload"},
	})
	require.NoError(t, c.Update(t.Context(), &p))
	waits := &refitv1.MachineUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "w1"}}
	waits.Spec.Digest, waits.Status.ObservedDigest = "d", "d"
	waits.Status.Phase, waits.Status.Reason = refitv1.PhaseWaiting, refitv1.ReasonWindow
	waits.Status.Plan = &refitv1.PlannedWork{Material: true, Disruption: "Reboot", Kinds: []string{"Configuration"}}
	status := waits.Status
	require.NoError(t, c.Create(t.Context(), waits))
	waits.Status = status
	require.NoError(t, c.Status().Update(t.Context(), waits))

	next := func(args ...string) string {
		out, err := run(t, scheduleNextCommand(&liveFlags{managementFlags: connected(c)}), append(args, "--now", "2026-10-05T00:00:00Z", "-n", "1")...)
		require.NoError(t, err)
		return out
	}
	out := next("--cluster", "prod")
	require.Contains(t, out, "fleet/w1\npolicies: saturdays\nnow: closed (OutsideWindow): policy saturdays (windows for changes up to Reload don't count: this one is of Configuration and takes Reboot): OutsideWindow; opens at 2026-10-10T22:00:00Z")
	require.Contains(t, out, "fleet/w2\npolicies: saturdays\nnow: open (Open): open until 2026-10-05T01:00:00Z\n", "nothing waits: some change may start")
	require.Contains(t, next("--machine", "w2", "--disruption", "Restart"), "this one takes Restart")
	require.Contains(t, next("--machine", "w1", "--disruption", "Reload"), "now: open (Open)")
}
