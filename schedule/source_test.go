package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSourcesSayWhatThePolicySays(t *testing.T) {
	texts := func(sources []Source) (out []string) {
		for _, s := range sources {
			out = append(out, s.String())
		}
		return out
	}
	saturdayAndDays := saturdays()
	saturdayAndDays.MaintenanceSchedule.TimeZone = "Europe/Berlin"
	saturdayAndDays.MaintenanceSchedule.Permit = append(saturdayAndDays.MaintenanceSchedule.Permit, Permit{Recurrence: "FREQ=DAILY", StartDate: "2026-01-03"})
	saturdayAndDays.MaintenanceSchedule.Exclude = []Exclude{
		{From: "2026-12-24"}, {From: "2026-12-20", Until: "2027-01-04", Reason: "freeze"},
		{Calendar: &CalendarReference{ConfigMap: ConfigMapKey{"holidays", "x.ics"}}},
	}
	onlyExcludes := Policy{Strategy: MaintenanceScheduleStrategy, MaintenanceSchedule: &MaintenanceSchedule{Exclude: []Exclude{{From: "2026-12-24"}}}}
	for name, c := range map[string]struct {
		policy            Policy
		permits, excludes []string
	}{
		"permits and excludes, with their defaults": {
			saturdayAndDays,
			[]string{
				"p: maintenanceSchedule.permit[0]: FREQ=WEEKLY;BYDAY=SA 20:00 8h Europe/Berlin",
				"p: maintenanceSchedule.permit[1]: FREQ=DAILY 00:00 to midnight Europe/Berlin from 2026-01-03",
			},
			[]string{
				"p: maintenanceSchedule.exclude[0]: 2026-12-24 Europe/Berlin",
				"p: maintenanceSchedule.exclude[1]: 2026-12-20 until 2027-01-04 Europe/Berlin (freeze)",
				"p: maintenanceSchedule.exclude[2]: x.ics of ConfigMap holidays",
			},
		},
		"excludes only": {
			onlyExcludes, []string{"p: maintenanceSchedule: always, but for what is excluded"},
			[]string{"p: maintenanceSchedule.exclude[0]: 2026-12-24 UTC"},
		},
		"always":                        {Policy{Strategy: PermissiveStrategy}, []string{"p: strategy: Permissive"}, nil},
		"never":                         {Policy{Strategy: RestrictiveStrategy}, nil, nil},
		"a schedule that is not in use": {Policy{Strategy: PermissiveStrategy, MaintenanceSchedule: saturdays().MaintenanceSchedule}, []string{"p: strategy: Permissive"}, nil},
		"a policy that can't be read":   {Policy{}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := Compile("p", c.policy, CalendarsFunc(func(ConfigMapKey) (Calendar, error) {
				return Calendar{Data: calendarOf("DTSTART;VALUE=DATE:20261225")}, nil
			}))
			require.Equal(t, c.permits, texts(s.Permits()))
			require.Equal(t, c.excludes, texts(s.Excludes()))
		})
	}
	require.Empty(t, (*Schedule)(nil).Permits())
	require.Equal(t, time.UTC, (*Schedule)(nil).Location())
}

func TestASourceHasWindowsOfItsOwn(t *testing.T) {
	p := saturdays()
	p.MaintenanceSchedule.Exclude = []Exclude{{From: "2026-10-03", Reason: "freeze"}}
	s, err := Compile("weekends", p, nil)
	require.NoError(t, err)
	permit, exclude := s.Permits()[0], s.Excludes()[0]
	noon, evening := instant(t, "2026-10-03T12:00:00Z"), instant(t, "2026-10-03T21:00:00Z")
	require.False(t, permit.Covers(noon))
	require.True(t, permit.Covers(evening))
	require.True(t, exclude.Covers(noon))
	day := Window{instant(t, "2026-10-03T00:00:00Z"), instant(t, "2026-10-04T00:00:00Z")}
	require.Equal(t, []Window{day}, slices.Collect(exclude.Windows(noon, evening)))
	night := Window{instant(t, "2026-10-03T20:00:00Z"), instant(t, "2026-10-04T04:00:00Z")}
	require.Equal(t, []Window{night}, slices.Collect(permit.Windows(noon, evening)))
	require.Empty(t, slices.Collect(Source{}.Windows(noon, evening)))
}
