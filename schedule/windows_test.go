package schedule

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawSchedules(t *rapid.T) []*Schedule {
	all := []*Schedule{drawSchedule(t, "a")}
	if rapid.Bool().Draw(t, "two") {
		all = append(all, drawSchedule(t, "b"))
	}
	return all
}

// drawRange draws some weeks around the excludes that are drawn and the change of the clocks.
func drawRange(t *rapid.T) (from, until time.Time) {
	from = time.Date(2026, 3, 1, 0, 0, rapid.IntRange(0, 40*secondsPerDay).Draw(t, "from"), 0, time.UTC)
	return from, from.Add(time.Duration(rapid.IntRange(0, 40*secondsPerDay).Draw(t, "length")) * time.Second)
}

func TestWindowsAgreeWithDecisions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawSchedules(t)
		from, until := drawRange(t)
		windows := slices.Collect(Windows(from, until, all...))
		open := func(at time.Time) bool { return Decide(Query{Now: at}, all...).Open }
		for i, w := range windows {
			require.True(t, w.End.IsZero() || w.End.After(from))
			require.True(t, w.Start.IsZero() || w.Start.Before(until))
			if i > 0 {
				require.True(t, windows[i-1].End.Before(w.Start), "%v and %v", windows[i-1], w)
			}
			if !w.Start.IsZero() {
				require.False(t, open(w.Start.Add(-time.Second)))
				require.True(t, open(w.Start))
			}
			if !w.End.IsZero() {
				require.True(t, open(w.End.Add(-time.Second)))
				require.False(t, open(w.End))
			}
		}
		for range 50 {
			at := from.Add(time.Duration(rapid.Int64Range(0, max(0, int64(until.Sub(from))-1)).Draw(t, "at")))
			if !at.Before(until) {
				break
			}
			inside := slices.ContainsFunc(windows, func(w Window) bool {
				return !at.Before(w.Start) && (w.End.IsZero() || at.Before(w.End))
			})
			require.Equal(t, inside, open(at), "%s in %v", at, windows)
		}
	})
}

func TestPastWindowsAreTheWindowsReversed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawSchedules(t)
		limit, before := drawRange(t)
		var want []Window
		for w := range Windows(limit, before, all...) {
			if !w.End.IsZero() && !w.End.After(before) {
				want = append([]Window{w}, want...)
			}
		}
		require.Equal(t, want, slices.Collect(PastWindows(before, limit, all...)))
	})
}

func TestWindowsAtTheEdges(t *testing.T) {
	s, err := Compile("weekends", saturdays(), nil)
	require.NoError(t, err)
	always, err := Compile("always", Policy{Strategy: PermissiveStrategy}, nil)
	require.NoError(t, err)
	window := func(start, end string) Window { return Window{instant(t, start), instant(t, end)} }
	october3 := window("2026-10-03T20:00:00Z", "2026-10-04T04:00:00Z")
	october10 := window("2026-10-10T20:00:00Z", "2026-10-11T04:00:00Z")
	for name, c := range map[string]struct {
		from, until string
		schedules   []*Schedule
		windows     []Window
		past        []Window
	}{
		"one that has begun counts, and one that starts at the end does not": {
			from: "2026-10-04T03:59:59.5Z", until: "2026-10-10T20:00:00Z", schedules: []*Schedule{s},
			windows: []Window{october3}, past: []Window{october3},
		},
		"one that ends at the start does not count, and one that starts just before the end does": {
			from: "2026-10-04T04:00:00Z", until: "2026-10-10T20:00:00.5Z", schedules: []*Schedule{s},
			windows: []Window{october10},
		},
		"no schedule":                           {from: "2026-10-04T03:00:00Z", until: "2026-10-05T00:00:00Z", windows: []Window{{}}},
		"always":                                {from: "2026-10-04T03:00:00Z", until: "2026-10-05T00:00:00Z", schedules: []*Schedule{always}, windows: []Window{{}}},
		"an end before the start":               {from: "2026-10-05T03:00:00Z", until: "2026-10-01T00:00:00Z", schedules: []*Schedule{s}},
		"one of two was not read":               {from: "2026-10-01T03:00:00Z", until: "2026-10-20T00:00:00Z", schedules: []*Schedule{s, nil}},
		"one of two is invalid":                 {from: "2026-10-01T03:00:00Z", until: "2026-10-20T00:00:00Z", schedules: []*Schedule{s, Invalid("x", errors.New("unreadable"))}},
		"an end at the end is past, and latest": {from: "2026-10-01T00:00:00Z", until: "2026-10-11T04:00:00Z", schedules: []*Schedule{s}, windows: []Window{october3, october10}, past: []Window{october10, october3}},
	} {
		t.Run(name, func(t *testing.T) {
			from, until := instant(t, c.from), instant(t, c.until)
			require.Equal(t, c.windows, slices.Collect(Windows(from, until, c.schedules...)))
			require.Equal(t, c.past, slices.Collect(PastWindows(until, from, c.schedules...)))
		})
	}
}
