package timeline

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

var update = flag.Bool("update-timeline", false, "write testdata/*.json again")

// now is a Saturday, four weeks before the clocks in Berlin go back.
var now = time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC)

func golden(t *testing.T, name string, v any) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	file := filepath.Join("testdata", name+".json")
	if *update {
		require.NoError(t, os.WriteFile(file, append(got, '\n'), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))
}

func compile(t *testing.T, name string, p schedule.Policy) *schedule.Schedule {
	t.Helper()
	s, err := schedule.Compile(name, p, schedule.NoCalendars)
	require.NoError(t, err)
	return s
}

func inWindows(zone string, m schedule.MaintenanceSchedule) schedule.Policy {
	m.TimeZone = zone
	return schedule.Policy{Strategy: schedule.MaintenanceScheduleStrategy, MaintenanceSchedule: &m}
}

func TestLanes(t *testing.T) {
	weekends := compile(t, "weekends", inWindows("Europe/Berlin", schedule.MaintenanceSchedule{
		Permit:  []schedule.Permit{{Recurrence: "FREQ=WEEKLY;BYDAY=SA", StartTime: "20:00", Duration: "8h"}},
		Exclude: []schedule.Exclude{{From: "2026-10-10", Until: "2026-10-12", Reason: "trade fair"}},
	}))
	nightly := compile(t, "nightly", inWindows("UTC", schedule.MaintenanceSchedule{
		Permit: []schedule.Permit{
			{Recurrence: "FREQ=DAILY", StartTime: "22:00", Duration: "4h", Changes: &schedule.PermittedChanges{MaxDisruption: "Reload"}},
		},
		Exclude: []schedule.Exclude{{From: "2026-09-30", Until: "2026-10-05", Reason: "begun before"}, {From: "2026-10-30", Until: "2026-12-01"}},
	}))
	always := compile(t, "always", schedule.Policy{Strategy: schedule.PermissiveStrategy})
	never := compile(t, "never", schedule.Policy{Strategy: schedule.RestrictiveStrategy})
	until := now.AddDate(0, 0, 28)
	for name, schedules := range map[string][]*schedule.Schedule{
		"weekends":        {weekends}, // one window is open, one is excluded, and one has an hour twice
		"nightly":         {nightly},
		"together":        {weekends, nightly},
		"always":          {always},
		"never":           {never},
		"none":            nil,
		"always-weekends": {always, weekends},
		"unreadable":      {schedule.Invalid("typo", &schedule.FieldError{Field: "strategy", Err: os.ErrInvalid}), weekends},
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, LaneOf(now, until, name, schedules...)) })
	}
}

func TestALaneHasABound(t *testing.T) {
	often := compile(t, "often", inWindows("UTC", schedule.MaintenanceSchedule{Permit: []schedule.Permit{{Recurrence: "FREQ=DAILY", Duration: "1h"}}}))
	lane := LaneOf(now, now.AddDate(0, 0, maxSpans+10), "often", often)
	require.Len(t, lane.Spans, maxSpans)
	require.Equal(t, 10, lane.More)
}

func TestWhatIsExcludedDoesNotHideWhatIsOpen(t *testing.T) {
	freezes := make([]schedule.Exclude, 300) // every other day
	for i := range freezes {
		freezes[i] = schedule.Exclude{From: now.AddDate(0, 0, 2*i).Format(time.DateOnly)}
	}
	often := compile(t, "often", inWindows("UTC", schedule.MaintenanceSchedule{Permit: []schedule.Permit{{Recurrence: "FREQ=DAILY", Duration: "1h"}}, Exclude: freezes}))
	lane := LaneOf(now, now.AddDate(0, 0, 599), "often", often)
	spans := map[Kind]int{}
	for _, s := range lane.Spans {
		spans[s.Kind]++
	}
	require.Equal(t, map[Kind]int{Open: maxSpans, Excluded: maxSpans}, spans)
	require.Equal(t, 400, lane.More)
}

func TestExpected(t *testing.T) {
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	change := func(cluster, kind, owner string, role refitv1.Role, start, end *metav1.Time) refitv1.PendingChange {
		p := refitv1.PendingChange{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: owner}}
		p.Spec = refitv1.PendingChangeSpec{Cluster: cluster, Owner: refitv1.PendingOwner{Kind: kind, Name: owner}, Role: role}
		p.Status = refitv1.PendingChangeStatus{Machines: 3, Causes: []refitv1.PendingCount{{Cause: refitv1.PendingInPlace, Machines: 3}}, EarliestStart: start, LastDone: end}
		p.Status.Conditions = []metav1.Condition{{Type: refitv1.ChangePendingCondition, Status: metav1.ConditionTrue, Message: "policy weekends: closed"}}
		return p
	}
	golden(t, "expected", Expect([]refitv1.PendingChange{
		change("prod", "Cluster", "prod", "", at(time.Hour), nil), // sums the next two up
		change("prod", "MachineDeployment", "prod-workers", refitv1.WorkerRole, at(2*time.Hour), nil),
		change("prod", "KubeadmControlPlane", "prod-cp", refitv1.ControlPlaneRole, at(time.Hour), at(3*time.Hour)),
		change("stuck", "MachineDeployment", "stuck-workers", refitv1.WorkerRole, nil, nil),
		change("upgrade", "Cluster", "upgrade", "", at(time.Minute), nil),
	}))
	require.NotNil(t, Expect(nil), "it is a list in JSON, too")
}
