package schedule

import (
	"archive/zip"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scanned resolves a local time by looking at every quarter of an hour of UTC for the clocks' readings: it knows nothing of
// transitions. Transitions and local times are on quarters of an hour.
func scanned(loc *time.Location, day Date, seconds int) int64 {
	const step = 15 * 60
	local := int64(day)*secondsPerDay + int64(seconds)
	previous := 0
	for unix := local - 15*3600; ; unix += step {
		_, off := time.Unix(unix, 0).In(loc).Zone()
		if unix+int64(off) == local {
			return unix
		}
		if unix+int64(off) > local {
			return local - int64(previous)
		}
		previous = off
	}
}

func TestLocalTimesAroundTransitions(t *testing.T) {
	names := zones(t)
	if testing.Short() {
		names = names[:40]
	}
	from, until := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2038, 1, 1, 0, 0, 0, 0, time.UTC)
	transitions := 0
	for _, name := range names {
		loc, err := time.LoadLocation(name)
		require.NoError(t, err)
		for at := from.In(loc); ; {
			_, next := at.ZoneBounds()
			if next.IsZero() || next.After(until) {
				break
			}
			at = next
			transitions++
			day := NewDate(next.Date())
			for d := day - 1; d <= day+1; d++ {
				step := 6 * 3600
				if d == day {
					step = 45 * 60
				}
				for seconds := 0; seconds < secondsPerDay; seconds += step {
					if got, want := resolve(loc, d, seconds), scanned(loc, d, seconds); got != want {
						t.Fatalf("%s %s+%ds: %d, by scanning %d", name, d, seconds, got, want)
					}
				}
			}
		}
	}
	t.Logf("%d transitions of %d zones", transitions, len(names))
	require.NotZero(t, transitions)
}

// zones returns the names of all zones of Go's copy of tzdata.
func zones(t *testing.T) []string {
	//nolint:staticcheck // the tests run where Go is
	r, err := zip.OpenReader(filepath.Join(runtime.GOROOT(), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Skip("there is no list of zones here: ", err)
	}
	defer r.Close() //nolint:errcheck // it was read
	var names []string
	for _, f := range r.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	require.NotEmpty(t, names)
	return names
}

func TestDates(t *testing.T) {
	start := time.Date(1896, 1, 1, 0, 0, 0, 0, time.UTC)
	for d := range 220 * 365 {
		want := start.AddDate(0, 0, d)
		day := NewDate(want.Date())
		require.EqualValues(t, want.Unix()/secondsPerDay, int64(day))
		y, m, dd := day.Civil()
		require.Equal(t, want, time.Date(y, m, dd, 0, 0, 0, 0, time.UTC))
		require.Equal(t, want.Weekday(), day.Weekday())
	}
}

func TestADayThatAZoneLeftOut(t *testing.T) {
	loc, err := loadZone("Pacific/Apia")
	require.NoError(t, err)
	rule, err := ParseRule("FREQ=DAILY")
	require.NoError(t, err)
	r := &recurring{rule: rule.Anchored(0), loc: loc, length: length{days: 1, midnight: true}}
	left := r.occurrence(NewDate(2011, 12, 30))
	require.Equal(t, left.start, left.end)
	require.Equal(t, r.occurrence(NewDate(2011, 12, 29)).end, r.occurrence(NewDate(2011, 12, 31)).start)
}
