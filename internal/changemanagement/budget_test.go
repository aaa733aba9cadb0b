package changemanagement

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/schedule"
)

// notMaterial has an update that was started be one that does not disturb the node.
func notMaterial(mu *refitv1.MachineUpdate) { mu.Status.Admission.Reason = refitv1.NotMaterial }

// configured has the Machine of an update have its configuration since some days ago.
func configured(days int) func(*refitv1.MachineUpdate) {
	return func(mu *refitv1.MachineUpdate) {
		mu.Status.LastSucceededAt = &metav1.Time{Time: inside.Add(-time.Duration(days) * 24 * time.Hour)}
	}
}

// fleet is a cluster c1 with Machines that have updates, by their names.
func fleet(all map[string][]func(*refitv1.MachineUpdate), edits map[string]func(*clusterv1.Machine), others ...client.Object) []client.Object {
	objects := append([]client.Object{cluster("c1", nil, nil)}, others...)
	for name, states := range all {
		m := worker(name)
		if edit := edits[name]; edit != nil {
			edit(m)
		}
		objects = append(objects, m, update(name, states...))
	}
	return objects
}

type states = []func(*refitv1.MachineUpdate)

func TestBudgets(t *testing.T) {
	pooled := map[string]string{"pool": "gpu"}
	inPool := ofPool("gpu")
	three := budget(refitv1.Budget{MaxConcurrent: 3})
	minuteAgo := inside.Add(-time.Minute)
	lastWeek := inside.Add(-7 * 24 * time.Hour)
	for name, tc := range map[string]struct {
		policies []*refitv1.ChangeManagementPolicy
		updates  map[string]states // that of w asks
		machines map[string]func(*clusterv1.Machine)
		says     string // nothing: it may start
	}{
		"no budget": {policies: some(anytime("a")), updates: map[string]states{"w": {waiting}, "x": {started(minuteAgo)}}},

		"fewer are under way than may be":       {policies: some(anytime("a", three)), updates: map[string]states{"w": {}, "x": {started(minuteAgo)}, "y": {started(minuteAgo)}}},
		"as many are under way as may be":       {policies: some(anytime("a", three)), updates: map[string]states{"w": {}, "x": {started(minuteAgo)}, "y": {started(minuteAgo)}, "z": {started(lastWeek)}}, says: "maxConcurrent"},
		"what has succeeded is not under way":   {policies: some(anytime("a", three)), updates: map[string]states{"w": {}, "x": {started(minuteAgo), ended}, "y": {started(minuteAgo)}, "z": {started(minuteAgo)}}},
		"what has failed is not under way":      {policies: some(anytime("a", three)), updates: map[string]states{"w": {}, "x": {started(minuteAgo), failed}, "y": {started(minuteAgo)}, "z": {started(minuteAgo)}}},
		"what started and waits is under way":   {policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1}))), updates: map[string]states{"w": {}, "x": {started(minuteAgo), waiting}}, says: "maxConcurrent"},
		"it does not wait for itself":           {policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1}))), updates: map[string]states{"w": {started(minuteAgo)}}},
		"what is not material is not under way": {policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1}))), updates: map[string]states{"w": {}, "x": {started(minuteAgo), notMaterial}}},
		"machines of no such pool do not count": {policies: some(anytime("a", machines(pooled), budget(refitv1.Budget{MaxConcurrent: 1}))), updates: map[string]states{"w": {}, "x": {started(minuteAgo)}}, machines: map[string]func(*clusterv1.Machine){"w": inPool}},
		"one of two policies has no slot":       {policies: some(anytime("a", three), anytime("b", budget(refitv1.Budget{MaxConcurrent: 1}))), updates: map[string]states{"w": {}, "x": {started(minuteAgo)}}, says: "policy b: "},

		"fewer have started in this window than may": {policies: some(saturdays("a", budget(refitv1.Budget{MaxStartsPerWindow: 2}))), updates: map[string]states{"w": {}, "x": {started(minuteAgo), ended}}},
		"as many have started in this window as may": {policies: some(saturdays("a", budget(refitv1.Budget{MaxStartsPerWindow: 2}))), updates: map[string]states{"w": {}, "x": {started(minuteAgo), ended}, "y": {started(opened), failed}}, says: "maxStartsPerWindow"},
		"a new window has a new budget":              {policies: some(saturdays("a", budget(refitv1.Budget{MaxStartsPerWindow: 2}))), updates: map[string]states{"w": {}, "x": {started(lastWeek), ended}, "y": {started(lastWeek), ended}}},
		"its own starts count":                       {policies: some(saturdays("a", budget(refitv1.Budget{MaxStartsPerWindow: 1}))), updates: map[string]states{"w": {started(minuteAgo), waiting}}, says: "maxStartsPerWindow"},
		"without a window it is for a day":           {policies: some(anytime("a", budget(refitv1.Budget{MaxStartsPerWindow: 1}))), updates: map[string]states{"w": {}, "x": {started(inside.Add(-25 * time.Hour)), ended}}},
		"without a window, within the day":           {policies: some(anytime("a", budget(refitv1.Budget{MaxStartsPerWindow: 1}))), updates: map[string]states{"w": {}, "x": {started(inside.Add(-20 * time.Hour)), ended}}, says: "the next ones may at 2026-10-04T00:00:00Z"},
		"a window that began long ago":               {policies: some(freeze("a", budget(refitv1.Budget{MaxStartsPerWindow: 1}))), updates: map[string]states{"w": {}, "x": {started(inside.Add(-200 * 24 * time.Hour)), ended}}},
		"a window that began long ago, today":        {policies: some(freeze("a", budget(refitv1.Budget{MaxStartsPerWindow: 1}))), updates: map[string]states{"w": {}, "x": {started(minuteAgo), ended}}, says: "the next ones may at 2026-10-04T07:00:00Z"},
		"the day is that of the policy":              {policies: some(freeze("a", budget(refitv1.Budget{MaxStartsPerWindow: 1}))), updates: map[string]states{"w": {}, "x": {started(instant("2026-10-03T06:59:00Z")), ended}}},
		"a window names the next one":                {policies: some(saturdays("a", budget(refitv1.Budget{MaxStartsPerWindow: 1}))), updates: map[string]states{"w": {}, "x": {started(minuteAgo), ended}}, says: "the next ones may at 2026-10-10T20:00:00Z"},
		"it is the policy's own window, not what is left by another policy": {
			policies: some(saturdays("a", budget(refitv1.Budget{MaxStartsPerWindow: 1})), saturdays("b", machines(pooled), func(s *spec) { s.MaintenanceSchedule.Permit[0].StartTime = "20:50" })),
			updates:  map[string]states{"w": {}, "x": {started(opened), ended}}, machines: map[string]func(*clusterv1.Machine){"w": inPool}, says: "policy a: ",
		},

		"the last one started long enough ago": {policies: some(anytime("a", budget(refitv1.Budget{MinSpacing: "1m"}))), updates: map[string]states{"w": {}, "x": {started(minuteAgo), ended}}},
		"the last one started a moment ago":    {policies: some(anytime("a", budget(refitv1.Budget{MinSpacing: "2m"}))), updates: map[string]states{"w": {}, "x": {started(minuteAgo), ended}, "y": {started(lastWeek), ended}}, says: "minSpacing"},
		"a clock was set back":                 {policies: some(anytime("a", budget(refitv1.Budget{MinSpacing: "1m"}))), updates: map[string]states{"w": {}, "x": {started(inside.Add(6 * time.Hour)), ended}}, says: "minSpacing"},
		"it was itself":                        {policies: some(anytime("a", budget(refitv1.Budget{MinSpacing: "2m"}))), updates: map[string]states{"w": {started(minuteAgo)}}, says: "minSpacing"},

		"fewer have failed than stop all":       {policies: some(anytime("a", budget(refitv1.Budget{StopAfterFailures: 2}))), updates: map[string]states{"w": {}, "x": {failed}}},
		"as many have failed as stop all":       {policies: some(anytime("a", budget(refitv1.Budget{StopAfterFailures: 2}))), updates: map[string]states{"w": {}, "x": {failed}, "y": {failed}}, says: "kubectl get machineupdates"},
		"one of them was abandoned":             {policies: some(anytime("a", budget(refitv1.Budget{StopAfterFailures: 2}))), updates: map[string]states{"w": {}, "x": {failed}, "y": {failed, abandoned}}},
		"it may try again itself":               {policies: some(anytime("a", budget(refitv1.Budget{StopAfterFailures: 1}))), updates: map[string]states{"w": {failed}}},
		"one that has new specs has not failed": {policies: some(anytime("a", budget(refitv1.Budget{StopAfterFailures: 1}))), updates: map[string]states{"w": {}, "x": {failed, func(mu *refitv1.MachineUpdate) { mu.Spec.Digest = "new" }}}},

		"an older configuration goes first":    {policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1}))), updates: map[string]states{"w": {waiting, configured(5)}, "x": {waiting, configured(6)}}, says: "older"},
		"its own is older":                     {policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1}))), updates: map[string]states{"w": {waiting, configured(7)}, "x": {waiting, configured(6)}}},
		"a new Machine is as old as itself":    {policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1}))), updates: map[string]states{"w": {waiting, configured(5)}, "x": {waiting}}, says: "older"},
		"of the same age, the first by name":   {policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1}))), updates: map[string]states{"w": {waiting}, "v": {waiting}}, says: "older"},
		"of the same age, the last by name":    {policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1}))), updates: map[string]states{"w": {waiting}, "x": {waiting}}},
		"there is room for both":               {policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 2}))), updates: map[string]states{"w": {waiting, configured(5)}, "x": {waiting, configured(6)}}},
		"with a space between them, just one":  {policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 2, MinSpacing: "1m"}))), updates: map[string]states{"w": {waiting, configured(5)}, "x": {waiting, configured(6)}}, says: "older"},
		"an older one that has not asked yet":  {policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1}))), updates: map[string]states{"w": {waiting, configured(5)}, "x": {configured(6)}}},
		"an older one that waits for its node": {policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1}))), updates: map[string]states{"w": {waiting, configured(5)}, "x": {waiting, configured(6), func(mu *refitv1.MachineUpdate) { mu.Status.Reason = refitv1.ReasonUnreachable }}}},
		"an older one whose other policy is closed blocks nobody": {
			policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1})), never("b", machines(pooled))),
			updates:  map[string]states{"w": {waiting, configured(5)}, "x": {waiting, configured(6)}}, machines: map[string]func(*clusterv1.Machine){"x": inPool},
		},
		"an older one whose other policy has no slot blocks nobody": {
			policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1})), anytime("b", machines(pooled), budget(refitv1.Budget{StopAfterFailures: 1}))),
			updates:  map[string]states{"w": {waiting, configured(5)}, "x": {waiting, configured(6)}, "y": {failed}},
			machines: map[string]func(*clusterv1.Machine){"x": inPool, "y": inPool},
		},
		"an older one that a Machine's override closes blocks nobody": {
			policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1}))),
			updates:  map[string]states{"w": {waiting, configured(5)}, "x": {waiting, configured(6)}}, machines: map[string]func(*clusterv1.Machine){"x": annotated(restrictiveKey, "true")},
		},
		"a Machine without its Cluster blocks nobody": {
			policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1}))),
			updates:  map[string]states{"w": {}, "x": {waiting}}, machines: map[string]func(*clusterv1.Machine){"x": inCluster("gone")},
		},

		"an override is not subject to budgets": {
			policies: some(anytime("a", budget(refitv1.Budget{MaxConcurrent: 1, MaxStartsPerWindow: 1, MinSpacing: "1h", StopAfterFailures: 1}))),
			updates:  map[string]states{"w": {waiting}, "x": {started(minuteAgo)}, "y": {failed}}, machines: map[string]func(*clusterv1.Machine){"w": annotated(bypassKey, "digest-w")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var policies []client.Object
			for _, p := range tc.policies {
				policies = append(policies, p)
			}
			w := newWorld(t, fleet(tc.updates, tc.machines, policies...)...)
			for range 2 { // to ask changes nothing
				d := w.ask("w")
				require.Equal(t, tc.says == "", d.Open, d.Message)
				if tc.says != "" {
					require.Equal(t, schedule.BudgetExhausted, d.Reason)
					require.Contains(t, d.Message, tc.says)
					require.Positive(t, d.NextChangeETASeconds)
					require.Zero(t, d.PermissiveRemainingSeconds)
				}
			}
			require.Equal(t, tc.says == "", w.admit("w").Open, "who admits says the same")
		})
	}
}

// freeze is a policy that is open but for a freeze at the end of each year, in Los Angeles.
func freeze(name string, edits ...edit) *refitv1.ChangeManagementPolicy {
	yearEnd := func(s *spec) {
		s.MaintenanceSchedule = &schedule.MaintenanceSchedule{TimeZone: "America/Los_Angeles", Exclude: []schedule.Exclude{{From: "2025-12-20", Until: "2026-01-07"}}}
	}
	return policy(name, schedule.MaintenanceScheduleStrategy, append([]edit{yearEnd}, edits...)...)
}

// TestAClockThatWasSetBackHoldsNothingForLong: what was started in the future counts as from when it was seen.
func TestAClockThatWasSetBackHoldsNothingForLong(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{"w": {}, "x": {started(inside.Add(6 * time.Hour)), ended}}, nil, anytime("a", budget(refitv1.Budget{MinSpacing: "1m"})))...)
	require.False(t, w.ask("w").Open)
	for _, after := range []time.Duration{time.Minute, 6*time.Hour + time.Second} { // also when the clock comes to it
		w.Clock.SetTime(inside.Add(after))
		require.True(t, w.ask("w").Open, after)
	}
}

// TestTheDayOfABudgetWhereThereIsNoMidnight: clocks in Chile go from 24:00 to 1:00.
func TestTheDayOfABudgetWhereThereIsNoMidnight(t *testing.T) {
	p := read(anytime("a", budget(refitv1.Budget{MaxStartsPerWindow: 1}), func(s *spec) {
		s.MaintenanceSchedule = &schedule.MaintenanceSchedule{TimeZone: "America/Santiago"}
	}))[0]
	evening := instant("2026-09-06T03:30:00Z") // 23:30 of the 5th
	from, next := p.period(evening, p.Schedule.Widest())
	require.Equal(t, "2026-09-05T04:00:00Z", text(from))
	require.Equal(t, "2026-09-06T04:00:00Z", text(next()))
	from, next = p.period(instant("2026-09-06T04:30:00Z"), p.Schedule.Widest())
	require.Equal(t, "2026-09-06T04:00:00Z", text(from))
	require.Equal(t, "2026-09-07T03:00:00Z", text(next()))
}

// TestWhoNeverFitsBlocksNobody: who has the oldest configuration goes first only where it could start.
func TestWhoNeverFitsBlocksNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		took time.Duration
		at   time.Time
	}{
		"longer than any window":        {9 * time.Hour, inside},
		"longer than what is left":      {2 * time.Hour, closes.Add(-119 * time.Minute)},
		"longer than any, a year later": {9 * time.Hour, inside.AddDate(0, 0, 7*52)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fleet(map[string]states{
				"old":   {waiting, configured(9), planned("Reboot")},
				"young": {waiting, configured(1), planned("Reload containerd.service")},
			}, nil, saturdays("a", expects("10m"), budget(refitv1.Budget{MaxConcurrent: 1})))...)
			w.learned(disruption.Reboot, tc.took, 20)
			w.Clock.SetTime(tc.at)
			d := w.ask("young")
			require.True(t, d.Open, d.Message)
		})
	}
}

func TestMachinesThatAreGoneDoNotCount(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{"w": {}}, nil, anytime("a", budget(refitv1.Budget{MaxConcurrent: 1})), update("gone", started(inside)))...)
	require.True(t, w.ask("w").Open)
}

func TestBudgetsEndWithWhatUsesThem(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{"w": {}, "x": {}}, nil, saturdays("a", budget(refitv1.Budget{MaxStartsPerWindow: 1, MinSpacing: "30m"})))...)
	require.True(t, w.admit("x").Open)
	w.edit("x", ended)
	for after, says := range map[time.Duration]string{
		0: "maxStartsPerWindow", 2 * time.Hour: "maxStartsPerWindow", 7 * 24 * time.Hour: "", 8 * 24 * time.Hour: string(schedule.OutsideWindow),
	} {
		w.Clock.SetTime(inside.Add(after))
		d := w.ask("w")
		require.Equal(t, says == "", d.Open, "%s later: %s", after, d.Message)
		require.Contains(t, d.Message, says)
	}
}

func TestNoneStarves(t *testing.T) {
	all := map[string]states{}
	for i := range 7 {
		all[fmt.Sprintf("w%d", i)] = states{waiting, configured(i)}
	}
	w := newWorld(t, fleet(all, nil, anytime("a", budget(refitv1.Budget{MaxConcurrent: 2})))...)
	var order []string
	for len(order) < len(all) {
		var now []string
		for i := range 7 { // the youngest asks first
			name := fmt.Sprintf("w%d", i)
			if get(w, name, &refitv1.MachineUpdate{}).Status.Phase == refitv1.PhaseWaiting && w.admit(name).Open {
				now = append(now, name)
			}
		}
		require.NotEmpty(t, now)
		for _, name := range now {
			w.edit(name, ended)
		}
		order = append(order, now...)
	}
	require.Equal(t, []string{"w5", "w6", "w3", "w4", "w1", "w2", "w0"}, order)
}
