package rivals

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
	"github.com/teambition/rrule-go"
)

// rules are those of schedule's benchmarks, anchored in 1970. What cron can say of them it says in five fields, at 20:00. It can't say a first
// Saturday, as it takes a day of the month and a weekday for two alternatives; nor every third day, as it counts the days of
// each month again.
var rules = []struct{ name, rule, cron string }{
	{"daily", "FREQ=DAILY", "0 20 * * *"},
	{"every-third-day", "FREQ=DAILY;INTERVAL=3", ""},
	{"weekly", "FREQ=WEEKLY;BYDAY=SA", "0 20 * * 6"},
	{"first-saturday", "FREQ=MONTHLY;BYDAY=1SA", ""},
	{"yearly", "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=31", "0 20 31 12 *"},
}

var now = time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)

// BenchmarkNextOpening asks for the next start of a window.
func BenchmarkNextOpening(b *testing.B) {
	benchmark(b, func(r *rrule.RRule) { r.After(now, false) }, func(s cron.Schedule) { s.Next(now) })
}

// BenchmarkDecision asks whether a window of eight hours is open, and otherwise when the next one is. These know starts
// only: rrule-go answers with the one before and the one after; cron, which can't look back, with the one after eight hours
// ago, and if that lies ahead there is no other to ask for. Neither says when the window ends, nor whether the update fits.
func BenchmarkDecision(b *testing.B) {
	benchmark(b, func(r *rrule.RRule) {
		r.Before(now, true)
		r.After(now, false)
	}, func(s cron.Schedule) {
		if next := s.Next(now.Add(-8 * time.Hour)); !next.After(now) {
			s.Next(now)
		}
	})
}

func benchmark(b *testing.B, byRule func(*rrule.RRule), byCron func(cron.Schedule)) {
	b.Helper()
	for _, c := range rules {
		b.Run(c.name+"/rrule-go", func(b *testing.B) {
			opts, err := rrule.StrToROption(c.rule)
			require.NoError(b, err)
			opts.Dtstart = time.Date(1970, 1, 1, 20, 0, 0, 0, time.UTC)
			r, err := rrule.NewRRule(*opts)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				byRule(r)
			}
		})
		if c.cron == "" {
			continue
		}
		b.Run(c.name+"/cron", func(b *testing.B) {
			s, err := cron.ParseStandard(c.cron)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				byCron(s)
			}
		})
	}
}
