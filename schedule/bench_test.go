package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// benchmarkRules are anchored in 1970. test/rivals asks others about the same ones.
var benchmarkRules = []struct{ name, rule string }{
	{"daily", "FREQ=DAILY"},
	{"every-third-day", "FREQ=DAILY;INTERVAL=3"},
	{"weekly", "FREQ=WEEKLY;BYDAY=SA"},
	{"first-saturday", "FREQ=MONTHLY;BYDAY=1SA"},
	{"yearly", "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=31"},
}

var benchmarkNow = time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)

// BenchmarkNextOpening asks for the next start of a window.
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
	}
}

// BenchmarkDecision asks whether a window of eight hours is open, and otherwise when the next one is.
func BenchmarkDecision(b *testing.B) {
	for _, c := range benchmarkRules {
		b.Run(c.name+"/refit", func(b *testing.B) {
			s := benchmarkSchedule(b, c.rule, "UTC")
			b.ReportAllocs()
			for b.Loop() {
				Decide(Query{Now: benchmarkNow}, s)
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
