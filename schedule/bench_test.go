package schedule

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
	"github.com/teambition/rrule-go"
)

// benchmarkRules are anchored in 1970. What cron can say of them it says in five fields, at 20:00. It can't say a first
// Saturday, as it takes a day of the month and a weekday for two alternatives; nor every third day, as it counts the days of
// each month again.
var benchmarkRules = []struct{ name, rule, cron string }{
	{"daily", "FREQ=DAILY", "0 20 * * *"},
	{"every-third-day", "FREQ=DAILY;INTERVAL=3", ""},
	{"weekly", "FREQ=WEEKLY;BYDAY=SA", "0 20 * * 6"},
	{"first-saturday", "FREQ=MONTHLY;BYDAY=1SA", ""},
	{"yearly", "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=31", "0 20 31 12 *"},
}

var benchmarkNow = time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)

// BenchmarkNextOpening asks for the next start of a window, of ours, of rrule-go, and of cron where it can say it.
func BenchmarkNextOpening(b *testing.B) {
	for _, c := range benchmarkRules {
		b.Run(c.name+"/refit", func(b *testing.B) {
			parsed, err := ParseRule(c.rule)
			require.NoError(b, err)
			r := &recurring{rule: parsed.Anchored(0), loc: time.UTC, seconds: 20 * 3600, length: length{seconds: 8 * 3600}}
			b.ReportAllocs()
			now := benchmarkNow.Unix()
			for b.Loop() {
				firstIn(r, now, now+1000*secondsPerDay)
			}
		})
		b.Run(c.name+"/rrule-go", func(b *testing.B) {
			other := otherRule(b, c.rule)
			b.ReportAllocs()
			for b.Loop() {
				other.After(benchmarkNow, false)
			}
		})
		if c.cron == "" {
			continue
		}
		b.Run(c.name+"/cron", func(b *testing.B) {
			other, err := cron.ParseStandard(c.cron)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				other.Next(benchmarkNow)
			}
		})
	}
}

func otherRule(b *testing.B, rule string) *rrule.RRule {
	b.Helper()
	opts, err := rrule.StrToROption(rule)
	require.NoError(b, err)
	opts.Dtstart = time.Date(1970, 1, 1, 20, 0, 0, 0, time.UTC)
	other, err := rrule.NewRRule(*opts)
	require.NoError(b, err)
	return other
}

// BenchmarkDecision asks whether a window of eight hours is open, and otherwise when the next one is. The others know starts
// only: rrule-go answers with the one before and the one after; cron, which can't look back, with the one after eight hours
// ago, and if that lies ahead there is no other to ask for. Neither says when the window ends, nor whether the update fits.
func BenchmarkDecision(b *testing.B) {
	for _, c := range benchmarkRules {
		b.Run(c.name+"/refit", func(b *testing.B) {
			s := benchmarkSchedule(b, c.rule, "UTC")
			b.ReportAllocs()
			for b.Loop() {
				Decide(Query{Now: benchmarkNow}, s)
			}
		})
		b.Run(c.name+"/rrule-go", func(b *testing.B) {
			other := otherRule(b, c.rule)
			b.ReportAllocs()
			for b.Loop() {
				other.Before(benchmarkNow, true)
				other.After(benchmarkNow, false)
			}
		})
		if c.cron == "" {
			continue
		}
		b.Run(c.name+"/cron", func(b *testing.B) {
			other, err := cron.ParseStandard(c.cron)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if next := other.Next(benchmarkNow.Add(-8 * time.Hour)); !next.After(benchmarkNow) {
					other.Next(benchmarkNow)
				}
			}
		})
	}
}

// BenchmarkDecide asks in zones, inside a window and outside.
func BenchmarkDecide(b *testing.B) {
	inside := time.Date(2026, 10, 3, 21, 0, 0, 0, time.UTC)
	for _, zone := range []string{"UTC", "Europe/Berlin"} {
		s := benchmarkSchedule(b, "FREQ=WEEKLY;BYDAY=SA", zone)
		for name, now := range map[string]time.Time{"closed": benchmarkNow, "open": inside} {
			b.Run(zone+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					Decide(Query{Now: now}, s)
				}
			})
		}
	}
}

// BenchmarkWindows walks a year of windows.
func BenchmarkWindows(b *testing.B) {
	s := benchmarkSchedule(b, "FREQ=WEEKLY;BYDAY=SA", "Europe/Berlin")
	b.ReportAllocs()
	for b.Loop() {
		for range Windows(benchmarkNow, benchmarkNow.AddDate(1, 0, 0), s) {
		}
	}
}

func benchmarkSchedule(b *testing.B, rule, zone string) *Schedule {
	b.Helper()
	p := saturdays()
	p.MaintenanceSchedule.TimeZone = zone
	p.MaintenanceSchedule.Permit[0].Recurrence = rule
	s, err := Compile("weekends", p, nil)
	require.NoError(b, err)
	return s
}
