package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func saturdays() Policy {
	return Policy{Strategy: MaintenanceScheduleStrategy, MaintenanceSchedule: &MaintenanceSchedule{
		Permit: []Permit{{Recurrence: "FREQ=WEEKLY;BYDAY=SA", StartTime: "20:00", Duration: "8h"}},
	}}
}

func instant(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	require.NoError(t, err)
	return at
}

func TestPoliciesThatCannotBeReadAreClosed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *Policy)
		says   string
	}{
		"no strategy":              {func(p *Policy) { p.Strategy = "" }, "strategy: "},
		"a fit that is not known":  {func(p *Policy) { p.Fit = "Tight" }, "fit: "},
		"a zone that is not known": {func(p *Policy) { p.MaintenanceSchedule.TimeZone = "Mars/Olympus" }, "maintenanceSchedule.timeZone: "},
		"the server's own zone":    {func(p *Policy) { p.MaintenanceSchedule.TimeZone = "Local" }, "maintenanceSchedule.timeZone: "},
		"a bad rule":               {func(p *Policy) { p.MaintenanceSchedule.Permit[0].Recurrence = "FREQ=HOURLY" }, "maintenanceSchedule.permit[0].recurrence: "},
		"COUNT from nowhere":       {func(p *Policy) { p.MaintenanceSchedule.Permit[0].Recurrence += ";COUNT=2" }, "maintenanceSchedule.permit[0].startDate: "},
		"a 30th of February":       {func(p *Policy) { p.MaintenanceSchedule.Permit[0].StartDate = "2026-02-30" }, "maintenanceSchedule.permit[0].startDate: "},
		"a time after midnight":    {func(p *Policy) { p.MaintenanceSchedule.Permit[0].StartTime = "24:00" }, "maintenanceSchedule.permit[0].startTime: "},
		"a duration of nothing":    {func(p *Policy) { p.MaintenanceSchedule.Permit[0].Duration = "0s" }, "maintenanceSchedule.permit[0].duration: "},
		"a duration backwards":     {func(p *Policy) { p.MaintenanceSchedule.Permit[0].Duration = "-1h" }, "maintenanceSchedule.permit[0].duration: "},
		"an expectation of words":  {func(p *Policy) { p.ExpectedDuration = "soon" }, "expectedDuration: "},
		"until before from": {func(p *Policy) {
			p.MaintenanceSchedule.Exclude = []Exclude{{From: "2026-12-20", Until: "2026-12-20"}}
		}, "maintenanceSchedule.exclude[0].until: "},
		"a calendar that is not there": {func(p *Policy) {
			p.MaintenanceSchedule.Exclude = []Exclude{{Calendar: &CalendarReference{ConfigMap: ConfigMapKey{"holidays", "x.ics"}}}}
		}, "maintenanceSchedule.exclude[0].calendar.configMap: "},
	} {
		t.Run(name, func(t *testing.T) {
			p := saturdays()
			c.change(&p)
			s, err := Compile("weekends", p, nil)
			var field *FieldError
			require.ErrorAs(t, err, &field)
			require.Contains(t, err.Error(), c.says)
			d := Decide(Query{Now: instant(t, "2026-10-03T21:00:00Z"), Bypass: true}, s)
			require.False(t, d.Open)
			require.Equal(t, InvalidPolicy, d.Reason)
			require.EqualValues(t, SecondsInvalid, d.NextChangeETASeconds)
			require.Contains(t, d.Message, c.says)
		})
	}
	require.Equal(t, InvalidPolicy, Decide(Query{Now: time.Unix(0, 0)}, nil).Reason)
}

func TestReasons(t *testing.T) {
	inside, outside := instant(t, "2026-10-03T21:00:00Z"), instant(t, "2026-10-01T00:00:00Z")
	excluded := func(p Policy, days ...string) Policy {
		p.MaintenanceSchedule.Exclude = []Exclude{{From: days[0], Until: days[1], Reason: "freeze"}}
		return p
	}
	never := Policy{Strategy: MaintenanceScheduleStrategy, MaintenanceSchedule: &MaintenanceSchedule{Permit: []Permit{}}}
	onlyExcludes := Policy{Strategy: MaintenanceScheduleStrategy, MaintenanceSchedule: &MaintenanceSchedule{}}
	warns := saturdays()
	warns.Fit = FitWarn
	for name, c := range map[string]struct {
		query  Query
		policy *Policy
		reason Reason
		open   bool
		eta    int64
	}{
		"no policy":                           {Query{Now: inside}, nil, Open, true, 0},
		"inside":                              {Query{Now: inside}, new(saturdays()), Open, true, 0},
		"outside":                             {Query{Now: outside}, new(saturdays()), OutsideWindow, false, 244800},
		"inside, but excluded":                {Query{Now: inside}, new(excluded(saturdays(), "2026-10-03", "2026-10-04")), Excluded, false, 10800},
		"excluded for years":                  {Query{Now: inside}, new(excluded(saturdays(), "2026-01-01", "2036-01-01")), NoWindowWithinHorizon, false, -1},
		"always":                              {Query{Now: inside}, &Policy{Strategy: PermissiveStrategy}, Open, true, 0},
		"never":                               {Query{Now: inside}, &Policy{Strategy: RestrictiveStrategy}, Paused, false, -1},
		"neither permits nor excludes":        {Query{Now: inside}, &onlyExcludes, Paused, false, -1},
		"an empty list of permits, excludes":  {Query{Now: inside}, new(excluded(never, "2026-01-01", "2026-01-02")), NoWindowWithinHorizon, false, -1},
		"too short, and a warning is enough":  {Query{Now: inside, ExpectedDuration: 20 * time.Hour}, &warns, Open, true, 0},
		"too short for ever":                  {Query{Now: inside, ExpectedDuration: 20 * time.Hour}, new(saturdays()), NeverFits, false, -1},
		"bypassed":                            {Query{Now: outside, Bypass: true}, new(saturdays()), Overridden, true, 0},
		"permissive for an hour":              {Query{Now: outside, PermissiveUntil: outside.Add(time.Hour)}, new(saturdays()), Overridden, true, 0},
		"permissive is over":                  {Query{Now: outside, PermissiveUntil: outside}, new(saturdays()), OutsideWindow, false, 244800},
		"restrictive inside":                  {Query{Now: inside, RestrictiveUntil: inside.Add(time.Hour)}, new(saturdays()), Overridden, false, 3600},
		"restrictive wins against permissive": {Query{Now: inside, RestrictiveUntil: inside.Add(time.Hour), PermissiveUntil: inside.Add(time.Hour)}, new(saturdays()), Overridden, false, 3600},
		"permissive beyond restrictive":       {Query{Now: outside, RestrictiveUntil: outside.Add(time.Hour), PermissiveUntil: outside.Add(2 * time.Hour)}, new(saturdays()), Overridden, false, 3600},
		"bypassed though restrictive":         {Query{Now: inside, Bypass: true, RestrictiveUntil: inside.Add(time.Hour)}, new(saturdays()), Overridden, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*Schedule
			if c.policy != nil {
				s, err := Compile("weekends", *c.policy, nil)
				require.NoError(t, err)
				all = append(all, s)
			}
			d := Decide(c.query, all...)
			require.Equal(t, c.reason, d.Reason, d.Message)
			require.Equal(t, c.open, d.Open)
			require.Equal(t, c.eta, d.NextChangeETASeconds)
			require.NotEmpty(t, d.Message)
		})
	}
}

func drawSchedule(t *rapid.T, label string) *Schedule {
	m := &MaintenanceSchedule{TimeZone: rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"}).Draw(t, label)}
	for range rapid.IntRange(1, 3).Draw(t, "permits") {
		m.Permit = append(m.Permit, Permit{
			Recurrence: rapid.SampledFrom([]string{"FREQ=DAILY;INTERVAL=2", "FREQ=WEEKLY;BYDAY=SA,SU", "FREQ=MONTHLY;BYDAY=1SA", "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"}).Draw(t, "rule"),
			StartTime:  rapid.SampledFrom([]string{"00:00", "02:30", "20:00", "23:15"}).Draw(t, "time"),
			Duration:   rapid.SampledFrom([]string{"", "1h", "8h", "38h", "24h"}).Draw(t, "duration"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "excludes") {
		m.Exclude = append(m.Exclude, Exclude{From: fmt.Sprintf("2026-%02d-%02d", rapid.IntRange(3, 4).Draw(t, "month"), rapid.IntRange(1, 30).Draw(t, "day"))})
	}
	s, err := Compile(label, Policy{Strategy: MaintenanceScheduleStrategy, MaintenanceSchedule: m}, nil)
	require.NoError(t, err)
	return s
}

func TestDecisionsFlipAtBoundariesOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []*Schedule{drawSchedule(t, "a")}
		if rapid.Bool().Draw(t, "two") {
			all = append(all, drawSchedule(t, "b"))
		}
		now := time.Date(2026, 3, 1, 0, 0, rapid.IntRange(0, 60*secondsPerDay).Draw(t, "now"), 0, time.UTC)
		d := Decide(Query{Now: now}, all...)
		flip := d.PermissiveRemainingSeconds
		if !d.Open {
			flip = d.NextChangeETASeconds
		}
		if flip < 0 {
			return
		}
		open := func(after int64) bool {
			return Decide(Query{Now: now.Add(time.Duration(after) * time.Second)}, all...).Open
		}
		require.Equal(t, !d.Open, open(flip))
		require.Equal(t, d.Open, open(flip-1))
		for after := int64(0); after < min(flip, 3*secondsPerDay); after += 1800 {
			require.Equal(t, d.Open, open(after), "%d of %d s later", after, flip)
		}
		if d.Open && !d.Window.Start.IsZero() {
			since := int64(now.Sub(d.Window.Start) / time.Second)
			require.True(t, open(-since))
			require.False(t, open(-since-1))
		}
	})
}

// TestWhoIsToBlame demands that a message names the policies that have to be changed.
func TestWhoIsToBlame(t *testing.T) {
	compile := func(name string, p *Policy) *Schedule {
		s, err := Compile(name, *p, NoCalendars)
		require.NoError(t, err)
		return s
	}
	saturday, over := compile("saturdays", new(saturdays())), saturdays()
	over.MaintenanceSchedule.Permit[0].Recurrence = "FREQ=DAILY;UNTIL=20200101T000000Z"
	tuesday := saturdays()
	tuesday.MaintenanceSchedule.Permit[0].Recurrence = "FREQ=WEEKLY;BYDAY=TU"
	paused := compile("stopped", &Policy{Strategy: RestrictiveStrategy})
	for want, all := range map[string][]*Schedule{
		"policy saturdays, policy tuesdays: each has windows, but there is none within 1000 days in which all are open; have them overlap": {saturday, compile("tuesdays", &tuesday)},
		"policy ended: no window within 1000 days": {saturday, compile("ended", &over)},
		"policy stopped is restrictive":            {saturday, paused},
	} {
		d := Decide(Query{Now: instant(t, "2026-10-01T00:00:00Z")}, all...)
		require.Equal(t, want, d.Message)
		require.EqualValues(t, SecondsNone, d.NextChangeETASeconds)
	}
}

func TestNotBefore(t *testing.T) {
	s, err := Compile("weekends", saturdays(), nil)
	require.NoError(t, err)
	open := instant(t, "2026-10-03T21:00:00Z")
	for name, c := range map[string]struct {
		q         Query
		schedules []*Schedule
		open      bool
		reason    Reason
		says      string
		eta       int64
	}{
		"within the window": {Query{NotBefore: open.Add(time.Hour)}, []*Schedule{s}, false, NotBefore, "not wanted before 2026-10-03T22:00:00Z; opens at 2026-10-03T22:00:00Z", 3600},
		"after the window":  {Query{NotBefore: open.Add(24 * time.Hour)}, []*Schedule{s}, false, NotBefore, "not wanted before 2026-10-04T21:00:00Z; opens at 2026-10-10T20:00:00Z", 167 * 3600},
		"a moment later":    {Query{NotBefore: open.Add(time.Nanosecond)}, []*Schedule{s}, false, NotBefore, "not wanted before", 1},
		"reached":           {Query{NotBefore: open}, []*Schedule{s}, true, Open, "open until", 0},
		"over":              {Query{NotBefore: open.Add(-time.Hour)}, []*Schedule{s}, true, Open, "open until", 0},
		"without a policy":  {Query{NotBefore: open.Add(time.Hour)}, nil, false, NotBefore, "not wanted before", 3600},
		"what is permissive opens nothing before":   {Query{NotBefore: open.Add(time.Hour), PermissiveUntil: open.Add(48 * time.Hour)}, []*Schedule{s}, false, NotBefore, "not wanted before", 3600},
		"what is restrictive is told first":         {Query{NotBefore: open.Add(time.Hour), RestrictiveUntil: open.Add(2 * time.Hour)}, []*Schedule{s}, false, Overridden, "restrictive until", 7200},
		"a bypass of the change passes it":          {Query{NotBefore: open.Add(time.Hour), Bypass: true}, []*Schedule{s}, true, Overridden, "bypassed", 0},
		"beyond the horizon nothing is to be known": {Query{NotBefore: open.AddDate(100, 0, 0)}, []*Schedule{s}, false, NotBefore, "an instant that is not near", SecondsNone},
	} {
		t.Run(name, func(t *testing.T) {
			c.q.Now = open
			d := Decide(c.q, c.schedules...)
			require.Equal(t, c.open, d.Open)
			require.Equal(t, c.reason, d.Reason)
			require.Contains(t, d.Message, c.says)
			require.Equal(t, c.eta, d.NextChangeETASeconds)
		})
	}
}
