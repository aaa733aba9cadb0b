package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/teambition/rrule-go"
)

// benchmarkRules are anchored in 1970.
var benchmarkRules = map[string]string{
	"weekly":        "FREQ=WEEKLY;BYDAY=SA",
	"first-weekday": "FREQ=MONTHLY;BYDAY=1SA",
	"daily":         "FREQ=DAILY;INTERVAL=3",
	"yearly":        "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=31",
}

var benchmarkNow = time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)

func BenchmarkNextOpening(b *testing.B) {
	for name, text := range benchmarkRules {
		parsed, err := ParseRule(text)
		require.NoError(b, err)
		r := &recurring{rule: parsed.Anchored(0), loc: time.UTC, seconds: 20 * 3600, length: length{seconds: 8 * 3600}}
		b.Run(name+"/refit", func(b *testing.B) {
			b.ReportAllocs()
			now := benchmarkNow.Unix()
			for b.Loop() {
				firstIn(r, now, now+1000*secondsPerDay)
			}
		})
		opts, err := rrule.StrToROption(text)
		require.NoError(b, err)
		opts.Dtstart = time.Date(1970, 1, 1, 20, 0, 0, 0, time.UTC)
		other, err := rrule.NewRRule(*opts)
		require.NoError(b, err)
		b.Run(name+"/rrule-go", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				other.After(benchmarkNow, false)
			}
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, zone := range []string{"UTC", "Europe/Berlin"} {
		p := saturdays()
		p.MaintenanceSchedule.TimeZone = zone
		s, err := Compile("weekends", p, nil)
		require.NoError(b, err)
		b.Run(zone, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Decide(Query{Now: benchmarkNow}, s)
			}
		})
	}
}
