package rivals

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/teambition/rrule-go"
	"pgregory.net/rapid"

	"github.com/capi-refit/refit/schedule"
)

const secondsPerDay = 24 * 3600

// drawRule draws rules for which rrule-go is right. It is not for BYSETPOS in the anchor's own week, which it cuts off, nor for
// weekdays with and without a number in one list, of which it wants a day to be both.
func drawRule(t *rapid.T) string {
	freq := rapid.SampledFrom([]string{"DAILY", "WEEKLY", "MONTHLY", "YEARLY"}).Draw(t, "freq")
	parts := []string{"FREQ=" + freq, fmt.Sprintf("INTERVAL=%d", rapid.IntRange(1, 5).Draw(t, "interval"))}
	list := func(name string, g *rapid.Generator[string], most int) bool {
		vs := rapid.SliceOfNDistinct(g, 0, most, rapid.ID[string]).Draw(t, name)
		if len(vs) > 0 {
			parts = append(parts, name+"="+strings.Join(vs, ","))
		}
		return len(vs) > 0
	}
	days := rapid.SampledFrom([]string{"MO", "TU", "WE", "TH", "FR", "SA", "SU"})
	if (freq == "MONTHLY" || freq == "YEARLY") && rapid.Bool().Draw(t, "numbered") {
		days = rapid.SampledFrom([]string{"1MO", "2TU", "5WE", "-1FR", "-2SU", "4SA"})
	}
	set := list("BYDAY", days, 3)
	if freq != "WEEKLY" {
		set = list("BYMONTHDAY", rapid.SampledFrom([]string{"1", "13", "29", "30", "31", "-1", "-31", "-7"}), 3) || set
	}
	set = list("BYMONTH", rapid.SampledFrom([]string{"1", "2", "3", "6", "11", "12"}), 3) || set
	if set && freq != "WEEKLY" && freq != "DAILY" {
		list("BYSETPOS", rapid.SampledFrom([]string{"1", "2", "-1", "-2", "3"}), 2)
	}
	if freq == "WEEKLY" {
		list("WKST", rapid.SampledFrom([]string{"MO", "SU", "WE"}), 1)
	}
	switch rapid.IntRange(0, 3).Draw(t, "end") {
	case 0:
		parts = append(parts, fmt.Sprintf("COUNT=%d", rapid.IntRange(1, 40).Draw(t, "count")))
	case 1:
		// As a day: of an instant, which may be another day in another zone, a rule alone does not know which days it admits.
		parts = append(parts, fmt.Sprintf("UNTIL=20%d0614", rapid.IntRange(22, 40).Draw(t, "until")))
	}
	return strings.Join(parts, ";")
}

func TestRulesAgreeWithAnotherImplementationInUTC(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawRule(t)
		anchor := schedule.NewDate(2019, 1, 1) + schedule.Date(rapid.IntRange(0, 1500).Draw(t, "anchor"))
		parsed, err := schedule.ParseRule(text)
		require.NoError(t, err, text)
		rule := parsed.Anchored(anchor)

		opts, err := rrule.StrToROption(text)
		require.NoError(t, err, text)
		opts.Dtstart = time.Unix(int64(anchor)*secondsPerDay, 0).UTC()
		other, err := rrule.NewRRule(*opts)
		require.NoError(t, err, text)

		limit := anchor + 3000
		var want, got, back []schedule.Date
		for _, at := range other.Between(opts.Dtstart, time.Unix(int64(limit)*secondsPerDay, 0).UTC(), true) {
			want = append(want, schedule.Date(at.Unix()/secondsPerDay))
		}
		for d, ok := rule.Next(0, limit); ok; d, ok = rule.Next(d+1, limit) {
			got = append(got, d)
		}
		require.Equal(t, want, got, text)
		for d, ok := rule.Previous(limit, 0); ok; d, ok = rule.Previous(d-1, 0) {
			back = append([]schedule.Date{d}, back...)
		}
		require.Equal(t, got, back, text)
	})
}
