package schedule_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/schedule"
)

// nightsAndSaturdays: reloads and restarts each night, everything on Saturdays, minor versions in the first week of a quarter only.
func nightsAndSaturdays() schedule.Policy {
	return schedule.Policy{Strategy: schedule.MaintenanceScheduleStrategy, MaintenanceSchedule: &schedule.MaintenanceSchedule{
		Permit: []schedule.Permit{
			{Recurrence: "FREQ=DAILY", StartTime: "22:00", Duration: "4h", Changes: &schedule.PermittedChanges{MaxDisruption: "Restart", Kinds: []schedule.Kind{schedule.ConfigurationKind}}},
			{Recurrence: "FREQ=WEEKLY;BYDAY=SA", Changes: &schedule.PermittedChanges{Kinds: []schedule.Kind{schedule.ConfigurationKind, schedule.PatchVersionKind}}},
			{Recurrence: "FREQ=DAILY;BYMONTH=1,4,7,10;BYMONTHDAY=1,2,3,4,5,6,7"},
		},
	}}
}

func compile(t *testing.T, p schedule.Policy) *schedule.Schedule {
	t.Helper()
	s, err := schedule.Compile("case", p, nil)
	require.NoError(t, err)
	return s
}

func at(t *testing.T, s string) time.Time {
	t.Helper()
	instant, err := time.Parse(time.RFC3339, s)
	require.NoError(t, err)
	return instant
}

func kindsOf(all ...schedule.Kind) []schedule.Kind { return all }

func TestScopesOfPermits(t *testing.T) {
	s := compile(t, nightsAndSaturdays())
	night, saturday, quarter := "2026-10-14T23:00:00Z", "2026-10-17T12:00:00Z", "2026-10-06T12:00:00Z"
	for _, c := range []struct {
		name  string
		class schedule.Class
		open  []string
	}{
		{"a reload", schedule.Class{Kinds: kindsOf(schedule.ConfigurationKind), Disruption: "Reload"}, []string{night, saturday, quarter}},
		{"as much as the limit", schedule.Class{Kinds: kindsOf(schedule.ConfigurationKind), Disruption: "Restart"}, []string{night, saturday, quarter}},
		{"a reboot", schedule.Class{Kinds: kindsOf(schedule.ConfigurationKind), Disruption: "Reboot"}, []string{saturday, quarter}},
		{"another patch", schedule.Class{Kinds: kindsOf(schedule.PatchVersionKind), Disruption: "Restart"}, []string{saturday, quarter}},
		{"two kinds that one permit has", schedule.Class{Kinds: kindsOf(schedule.PatchVersionKind, schedule.ConfigurationKind), Disruption: "Reboot"}, []string{saturday, quarter}},
		{"two kinds of which a permit has one", schedule.Class{Kinds: kindsOf(schedule.MinorVersionKind, schedule.ConfigurationKind), Disruption: "Reload"}, []string{quarter}},
		{"another minor version", schedule.Class{Kinds: kindsOf(schedule.MinorVersionKind), Disruption: "Drain"}, []string{quarter}},
		{"a replacement", schedule.Class{Kinds: kindsOf(schedule.ConfigurationKind), Disruption: schedule.ReplaceDisruption}, []string{saturday, quarter}},
		{"of which nothing is known", schedule.Class{}, []string{quarter}},
		{"whose kind is not known", schedule.Class{Disruption: schedule.NoDisruption}, []string{quarter}},
		{"of which it is not known what it takes", schedule.Class{Kinds: kindsOf(schedule.ConfigurationKind)}, []string{saturday, quarter}},
		{"in words that nobody knows", schedule.Class{Kinds: kindsOf("Firmware"), Disruption: "Explode"}, []string{quarter}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var open []string
			for _, now := range []string{night, saturday, quarter} {
				if schedule.Decide(schedule.Query{Now: at(t, now)}, s.For(c.class)).Open {
					open = append(open, now)
				}
			}
			require.Equal(t, c.open, open)
		})
	}
	require.True(t, s.Scoped())
	require.Same(t, s.For(schedule.Class{Disruption: "Drain"}), s.For(schedule.Class{Disruption: "Drain"}), "a view is made once")
	require.False(t, schedule.Decide(schedule.Query{Now: at(t, night)}, s).Open, "who says nothing about the change is told as of the worst")
}

func TestScopesOfExcludes(t *testing.T) {
	s := compile(t, schedule.Policy{Strategy: schedule.MaintenanceScheduleStrategy, MaintenanceSchedule: &schedule.MaintenanceSchedule{
		Exclude: []schedule.Exclude{
			{From: "2026-11-01", Reason: "no reboots", Changes: &schedule.ExcludedChanges{MinDisruption: "Reboot"}},
			{From: "2026-11-02", Reason: "no new minors", Changes: &schedule.ExcludedChanges{Kinds: kindsOf(schedule.MinorVersionKind)}},
			{From: "2026-11-03", Reason: "all"},
		},
	}})
	days := []string{"2026-11-01T12:00:00Z", "2026-11-02T12:00:00Z", "2026-11-03T12:00:00Z"}
	for _, c := range []struct {
		name  string
		class schedule.Class
		open  []bool
	}{
		{"a restart", schedule.Class{Kinds: kindsOf(schedule.ConfigurationKind), Disruption: "Restart"}, []bool{true, true, false}},
		{"a reboot", schedule.Class{Kinds: kindsOf(schedule.ConfigurationKind), Disruption: "Reboot"}, []bool{false, true, false}},
		{"a replacement", schedule.Class{Kinds: kindsOf(schedule.ImageKind), Disruption: schedule.ReplaceDisruption}, []bool{false, true, false}},
		{"one frozen kind of two", schedule.Class{Kinds: kindsOf(schedule.ConfigurationKind, schedule.MinorVersionKind), Disruption: "Restart"}, []bool{true, false, false}},
		{"of which nothing is known", schedule.Class{}, []bool{false, false, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, now := range days {
				require.Equal(t, c.open[i], schedule.Decide(schedule.Query{Now: at(t, now)}, s.For(c.class)).Open, now)
			}
		})
	}
	d := schedule.Decide(schedule.Query{Now: at(t, days[0])}, s.For(schedule.Class{Kinds: kindsOf(schedule.ConfigurationKind), Disruption: "Reboot"}))
	require.Equal(t, schedule.Excluded, d.Reason)
	require.Contains(t, d.Message, "policy case (no reboots, for changes from Reboot on)")
}

func TestMessagesTellWhyAWindowDoesNotCount(t *testing.T) {
	s := compile(t, nightsAndSaturdays())
	ask := func(c schedule.Class) string {
		return schedule.Decide(schedule.Query{Now: at(t, "2026-10-14T23:00:00Z")}, s.For(c)).Message
	}
	require.Equal(t, "policy case (windows for changes of Configuration up to Restart don't count: this one is of Configuration and takes Reboot): OutsideWindow; opens at 2026-10-17T00:00:00Z",
		ask(schedule.Class{Kinds: kindsOf(schedule.ConfigurationKind), Disruption: "Reboot"}))
	require.Contains(t, ask(schedule.Class{}), "this one may be of any kind and take anything, since that is not known yet")
	require.Contains(t, ask(schedule.Class{Kinds: kindsOf(schedule.MinorVersionKind)}), "this one is of MinorVersion, and it is not known yet what it takes")
	require.Contains(t, ask(schedule.Class{Disruption: "Drain"}), "this one takes Drain)")

	p := nightsAndSaturdays()
	p.MaintenanceSchedule.Permit = p.MaintenanceSchedule.Permit[:2]
	d := schedule.Decide(schedule.Query{Now: at(t, "2026-10-14T23:00:00Z")}, compile(t, p).For(schedule.Class{Kinds: kindsOf(schedule.ImageKind), Disruption: schedule.ReplaceDisruption}))
	require.Equal(t, schedule.NoWindowWithinHorizon, d.Reason)
	require.Equal(t, "policy case (windows for changes of Configuration up to Restart and changes of Configuration and PatchVersion don't count: this one is of Image and takes Replace): no window within 1000 days", d.Message)
}

func TestAdjacentPermitsAreOneWindowForWhomBothAre(t *testing.T) {
	s := compile(t, schedule.Policy{Strategy: schedule.MaintenanceScheduleStrategy, MaintenanceSchedule: &schedule.MaintenanceSchedule{Permit: []schedule.Permit{
		{Recurrence: "FREQ=DAILY", StartTime: "20:00", Duration: "2h"},
		{Recurrence: "FREQ=DAILY", StartTime: "22:00", Duration: "2h", Changes: &schedule.PermittedChanges{MaxDisruption: "Reload"}},
	}}})
	lengths := func(s *schedule.Schedule) (out []time.Duration) {
		for w := range schedule.Windows(at(t, "2026-10-14T00:00:00Z"), at(t, "2026-10-15T00:00:00Z"), s) {
			out = append(out, w.End.Sub(w.Start))
		}
		return out
	}
	require.Equal(t, []time.Duration{4 * time.Hour}, lengths(s.For(schedule.Class{Disruption: "Reload"})))
	require.Equal(t, []time.Duration{2 * time.Hour}, lengths(s.For(schedule.Class{Disruption: "Restart"})))
	require.Equal(t, []time.Duration{4 * time.Hour}, lengths(s.Widest()))
}

func TestScopesThatCannotBeRead(t *testing.T) {
	for field, changes := range map[string]schedule.PermittedChanges{
		"maintenanceSchedule.permit[0].changes":               {},
		"maintenanceSchedule.permit[0].changes.kinds":         {Kinds: []schedule.Kind{}},
		"maintenanceSchedule.permit[0].changes.maxDisruption": {MaxDisruption: "restart"},
	} {
		_, err := schedule.Compile("case", schedule.Policy{Strategy: schedule.MaintenanceScheduleStrategy, MaintenanceSchedule: &schedule.MaintenanceSchedule{
			Permit: []schedule.Permit{{Recurrence: "FREQ=DAILY", Changes: &changes}},
		}}, nil)
		var refused *schedule.FieldError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, field, refused.Field)
	}
	for field, changes := range map[string]schedule.ExcludedChanges{
		"maintenanceSchedule.exclude[0].changes":               {},
		"maintenanceSchedule.exclude[0].changes.kinds":         {Kinds: kindsOf("Minor")},
		"maintenanceSchedule.exclude[0].changes.minDisruption": {MinDisruption: "Boot"},
	} {
		_, err := schedule.Compile("case", schedule.Policy{Strategy: schedule.MaintenanceScheduleStrategy, MaintenanceSchedule: &schedule.MaintenanceSchedule{
			Exclude: []schedule.Exclude{{From: "2026-11-01", Changes: &changes}},
		}}, nil)
		var refused *schedule.FieldError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, field, refused.Field)
	}
}

// classes are some of all that there are.
func classes() []schedule.Class {
	all := []schedule.Class{{}}
	for _, d := range append(schedule.Disruptions(), "") {
		for _, kinds := range [][]schedule.Kind{nil, {schedule.ConfigurationKind}, {schedule.PatchVersionKind}, {schedule.MinorVersionKind}, {schedule.ImageKind}, {schedule.ImageKind, schedule.MinorVersionKind}} {
			all = append(all, schedule.Class{Kinds: kinds, Disruption: d})
		}
	}
	return all
}

func TestWithoutScopesNothingDependsOnTheChange(t *testing.T) {
	var cases []struct {
		Name     string
		Policies []schedule.Policy
		Now      time.Time
	}
	data, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &cases))
	for _, c := range cases {
		var plain, all []*schedule.Schedule
		for _, p := range c.Policies {
			if m := p.MaintenanceSchedule; m != nil {
				for i := range m.Permit {
					m.Permit[i].Changes = nil
				}
				for i := range m.Exclude {
					m.Exclude[i].Changes = nil
				}
			}
			s := compile(t, p)
			require.False(t, s.Scoped())
			require.Same(t, s, s.Widest())
			for _, class := range classes() {
				require.Same(t, s, s.For(class))
			}
			plain = append(plain, s)
			// Scopes with all changes in them are none.
			if m := p.MaintenanceSchedule; m != nil {
				for i := range m.Permit {
					m.Permit[i].Changes = &schedule.PermittedChanges{MaxDisruption: schedule.ReplaceDisruption, Kinds: schedule.Kinds()}
				}
				for i := range m.Exclude {
					m.Exclude[i].Changes = &schedule.ExcludedChanges{MinDisruption: schedule.NoDisruption, Kinds: schedule.Kinds()}
				}
			}
			all = append(all, compile(t, p))
		}
		want := schedule.Decide(schedule.Query{Now: c.Now}, plain...)
		want.Message, want.ClosedBy = "", nil // which tell for which changes it is open
		for _, class := range classes() {
			views := make([]*schedule.Schedule, len(all))
			for i, s := range all {
				views[i] = s.For(class)
			}
			got := schedule.Decide(schedule.Query{Now: c.Now}, views...)
			got.Message, got.ClosedBy = "", nil
			require.Equal(t, want, got, "%s: %v", c.Name, class)
		}
	}
}

// TestScopesLeaveOutWhatIsForOthers compares with policies that never had what is for other changes.
func TestScopesLeaveOutWhatIsForOthers(t *testing.T) {
	random := rand.New(rand.NewPCG(18, 12)) // cases that are the same each time
	for range 25 {
		p := randomPolicy(random)
		s := compile(t, p)
		now := at(t, "2026-01-01T00:00:00Z").Add(time.Duration(random.IntN(400*24)) * time.Hour)
		some := false
		for _, c := range classes() {
			want := compile(t, without(p, c))
			require.Equal(t, windows(want, now), windows(s.For(c), now), "%v: %v", p.MaintenanceSchedule, c)
			d, e := schedule.Decide(schedule.Query{Now: now}, want), schedule.Decide(schedule.Query{Now: now}, s.For(c))
			d.Message, e.Message, d.ClosedBy, e.ClosedBy = "", "", nil, nil
			if d.Reason == schedule.Paused { // with nothing left in it, the other policy says nothing at all
				d.Reason = e.Reason
			}
			require.Equal(t, d, e)
			some = some || d.Open
		}
		require.Equal(t, some, schedule.Decide(schedule.Query{Now: now}, s.Widest()).Open)
	}
}

func windows(s *schedule.Schedule, from time.Time) (out []string) {
	for w := range schedule.Windows(from, from.AddDate(0, 2, 0), s) {
		out = append(out, fmt.Sprint(w))
	}
	return out
}

func randomPolicy(random *rand.Rand) schedule.Policy {
	m := &schedule.MaintenanceSchedule{Permit: []schedule.Permit{}, TimeZone: "Europe/Berlin"}
	recurrences := []string{"FREQ=DAILY", "FREQ=WEEKLY;BYDAY=SA,SU", "FREQ=MONTHLY;BYDAY=1SA", "FREQ=DAILY;BYMONTH=1,4,7,10"}
	for range 1 + random.IntN(4) {
		one := schedule.Permit{Recurrence: recurrences[random.IntN(4)], StartTime: fmt.Sprintf("%02d:00", random.IntN(24)), Duration: fmt.Sprintf("%dh", 1+random.IntN(30))}
		if random.IntN(4) > 0 {
			one.Changes = &schedule.PermittedChanges{Kinds: randomKinds(random), MaxDisruption: schedule.Disruptions()[random.IntN(12)]}
		}
		m.Permit = append(m.Permit, one)
	}
	for day := range random.IntN(4) {
		one := schedule.Exclude{From: fmt.Sprintf("2026-%02d-%02d", 1+random.IntN(12), 1+random.IntN(27)), Until: fmt.Sprintf("2027-01-0%d", 1+day)}
		if random.IntN(4) > 0 {
			one.Changes = &schedule.ExcludedChanges{Kinds: randomKinds(random), MinDisruption: schedule.Disruptions()[random.IntN(12)]}
		}
		m.Exclude = append(m.Exclude, one)
	}
	return schedule.Policy{Strategy: schedule.MaintenanceScheduleStrategy, MaintenanceSchedule: m}
}

func randomKinds(random *rand.Rand) []schedule.Kind {
	var out []schedule.Kind
	for _, k := range schedule.Kinds() {
		if random.IntN(2) == 0 {
			out = append(out, k)
		}
	}
	return out
}

// without returns a policy without scopes that is as p is for a change.
func without(p schedule.Policy, c schedule.Class) schedule.Policy {
	rank := func(d schedule.Disruption) int { return slices.Index(schedule.Disruptions(), d) }
	takes, kinds := rank(c.Disruption), c.Kinds
	if takes < 0 {
		takes = rank(schedule.ReplaceDisruption)
	}
	if len(kinds) == 0 {
		kinds = schedule.Kinds()
	}
	in := func(scope []schedule.Kind) (n int) {
		for _, k := range kinds {
			if len(scope) == 0 || slices.Contains(scope, k) {
				n++
			}
		}
		return n
	}
	m := *p.MaintenanceSchedule
	m.Permit, m.Exclude = []schedule.Permit{}, nil
	for _, one := range p.MaintenanceSchedule.Permit {
		if s := one.Changes; s == nil || in(s.Kinds) == len(kinds) && takes <= rank(s.MaxDisruption) {
			one.Changes = nil
			m.Permit = append(m.Permit, one)
		}
	}
	for _, one := range p.MaintenanceSchedule.Exclude {
		if s := one.Changes; s == nil || in(s.Kinds) > 0 && takes >= rank(s.MinDisruption) {
			one.Changes = nil
			m.Exclude = append(m.Exclude, one)
		}
	}
	p.MaintenanceSchedule = &m
	return p
}
