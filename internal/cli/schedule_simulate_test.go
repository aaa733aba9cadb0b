package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/capi-refit/refit/schedule"
)

var changedFile = filepath.Join("testdata", "changed.yaml")

// requireGolden compares with a file of testdata.
func requireGolden(t *testing.T, file, got string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestScheduleSimulate(t *testing.T) {
	out, err := runSchedule(t, "", "simulate", "-f", policiesFile, "--now", "2026-10-23T12:00:00Z", "--weeks", "2")
	require.NoError(t, err)
	requireGolden(t, "simulate.txt", out)
}

func TestScheduleSimulateWhereTheClocksGoForward(t *testing.T) {
	out, err := runSchedule(t, weekly("SU", "00:00", "6h"), "simulate", "-f", "-", "--now", "2026-03-29T12:00:00Z", "--weeks", "1",
		"--time-zone", "Europe/Berlin")
	require.NoError(t, err)
	require.Contains(t, out, "= Sun 29        .# ### ##.... ...... ......  01:00 to 08:00, 6h; the clocks change: a day of 23h\n")
	require.Contains(t, out, "Hours that are blank are skipped by the clocks.\n")
}

// TestDaysWithoutMidnight has days whose midnight the clocks skip or show twice.
func TestDaysWithoutMidnight(t *testing.T) {
	for zone, c := range map[string]struct {
		day    time.Time
		start  string
		length time.Duration
	}{
		"Africa/Cairo":        {time.Date(2026, 4, 24, 0, 0, 0, 0, time.UTC), "2026-04-24T01:00:00+03:00", 23 * time.Hour},
		"America/Havana":      {time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), "2026-11-01T00:00:00-04:00", 25 * time.Hour},
		"America/Santiago":    {time.Date(2026, 9, 6, 0, 0, 0, 0, time.UTC), "2026-09-06T01:00:00-03:00", 23 * time.Hour},
		"Australia/Lord_Howe": {time.Date(2026, 10, 4, 0, 0, 0, 0, time.UTC), "2026-10-04T00:00:00+10:30", 23*time.Hour + 30*time.Minute},
	} {
		t.Run(zone, func(t *testing.T) {
			loc, err := time.LoadLocation(zone)
			require.NoError(t, err)
			day := time.Date(2026, c.day.Month(), c.day.Day(), 12, 0, 0, 0, loc)
			require.Equal(t, c.start, startOfDay(day).Format(time.RFC3339))
			require.Equal(t, c.length, startOfDay(day.AddDate(0, 0, 1)).Sub(startOfDay(day)))
		})
	}
}

func TestScheduleSimulateWithChanges(t *testing.T) {
	args := []string{"simulate", "-f", policiesFile, "--with", changedFile, "--now", "2026-10-23T12:00:00Z", "--weeks", "2"}
	out, err := runSchedule(t, "", args...)
	require.NoError(t, err)
	requireGolden(t, "simulate-with.txt", out)

	out, err = runSchedule(t, "", append(args, "-o", "json")...)
	require.NoError(t, err)
	var read simulationOutput
	require.NoError(t, json.Unmarshal([]byte(out), &read))
	require.Equal(t, "2026-10-22T22:00:00Z", read.From)
	require.Len(t, read.Windows, 4)
	require.Len(t, *read.Changes, 4)
	require.Equal(t, "lengthened", (*read.Changes)[0].Change)

	out, err = runSchedule(t, "", "simulate", "-f", policiesFile, "--with", policiesFile)
	require.NoError(t, err)
	require.Contains(t, out, "alters no window in this time")
}

func TestWhatBecomesOfWindows(t *testing.T) {
	// A window is two hours of a day: "03-05" is from three to five.
	day := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	read := func(windows string) (all []schedule.Window) {
		for w := range strings.FieldsSeq(windows) {
			var bounds [2]time.Time
			for i, b := range strings.Split(w, "-") {
				if b != "" {
					h, err := time.ParseDuration(b + "h")
					require.NoError(t, err)
					bounds[i] = day.Add(h)
				}
			}
			all = append(all, schedule.Window{Start: bounds[0], End: bounds[1]})
		}
		return all
	}
	for name, c := range map[string]struct{ before, after, want string }{
		"nothing":                              {"", "", ""},
		"the same":                             {"1-2 3-5", "1-2 3-5", ""},
		"one more":                             {"1-2", "1-2 40-41", "added"},
		"one less":                             {"1-2 40-41", "40-41", "removed"},
		"a later start":                        {"1-5", "2-5", "shortened"},
		"inside":                               {"1-5", "2-4", "shortened"},
		"a later end":                          {"1-5", "1-6", "lengthened"},
		"later":                                {"1-5", "2-6", "moved"},
		"later, and apart":                     {"1-5", "5-9", "moved"},
		"earlier, and apart":                   {"20-21", "1-2", "moved"},
		"too far away to be the same":          {"1-2", "26-27", "removed added"},
		"in two":                               {"1-5", "1-2 4-5", "split"},
		"from two":                             {"1-2 4-5", "1-5", "joined"},
		"from two to two others that overlap":  {"1-3 4-6", "2-5 5-8", "rearranged"},
		"one has no end any more":              {"1-3", "1-", "lengthened"},
		"one had no end":                       {"1-", "1-3", "shortened"},
		"none has an end, and one had a start": {"1-", "-", "lengthened"},
	} {
		t.Run(name, func(t *testing.T) {
			var kinds []string
			for _, change := range compareWindows(read(c.before), read(c.after)) {
				kinds = append(kinds, string(change.kind))
			}
			require.Equal(t, c.want, strings.Join(kinds, " "))
		})
	}
}

func TestTheDrawingIsColoredOnlyOnATerminal(t *testing.T) {
	p, err := loadPolicies(nil, []string{policiesFile}, time.Date(2026, 10, 23, 12, 0, 0, 0, time.UTC), (*schedule.Schedule).Widest)
	require.NoError(t, err)
	s, err := (&simulateFlags{weeks: 1}).simulate(nil, p)
	require.NoError(t, err)
	require.NotContains(t, s.text(false), "\x1b")
	require.Contains(t, s.text(true), "\x1b[32m#\x1b[0m")
	require.False(t, isTerminal(&bytes.Buffer{}))
}

func TestScheduleSimulateWritesAPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "windows.html")
	out, err := runSchedule(t, "", "simulate", "-f", policiesFile, "--with", changedFile, "--now", "2026-10-23T12:00:00Z", "--weeks", "2", "--html", file)
	require.NoError(t, err)
	require.Equal(t, "wrote "+file+"\n", out)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	requireBalanced(t, data)
	require.NotContains(t, string(data), "http")
	require.NotContains(t, string(data), "<script")
	require.NotContains(t, string(data), "ZgotmplZ", "a value that the template does not trust")

	page, err := html.Parse(bytes.NewReader(data))
	require.NoError(t, err)
	var lanes, titles []string
	for n := range page.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if attribute(n, "class") == "name" && n.FirstChild != nil {
			lanes = append(lanes, n.FirstChild.Data)
		}
		if title := attribute(n, "title"); title != "" {
			titles = append(titles, title)
		}
	}
	week := []string{"weekends", "all together", "weekends (changed)", "all together (changed)", "the difference"}
	require.Equal(t, append(week, week...), lanes)
	require.Contains(t, titles, "excluded for fair & <festival>: Sun 2026-10-25 00:00 CEST to Mon 2026-10-26 00:00 CET "+
		"(UTC: 2026-10-24T22:00:00Z to 2026-10-25T23:00:00Z)")
	require.Contains(t, titles, "open: Sat 2026-10-24 20:00 CEST to Sun 2026-10-25 00:00 CEST "+
		"(UTC: 2026-10-24T18:00:00Z to 2026-10-24T22:00:00Z), by FREQ=WEEKLY;BYDAY=SA 20:00 32h Europe/Berlin")
	require.Contains(t, titles, "would open: Thu 2026-10-29 10:15 CET to Thu 2026-10-29 11:45 CET (UTC: 2026-10-29T09:15:00Z to 2026-10-29T10:45:00Z)")
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// requireBalanced wants each element that is opened to be closed, in order.
func requireBalanced(t *testing.T, page []byte) {
	t.Helper()
	void := map[string]bool{"meta": true, "br": true}
	var open []string
	for z := html.NewTokenizer(bytes.NewReader(page)); ; {
		kind := z.Next()
		name, _ := z.TagName()
		switch kind {
		case html.ErrorToken:
			require.ErrorIs(t, z.Err(), io.EOF)
			require.Empty(t, open)
			return
		case html.StartTagToken:
			if !void[string(name)] {
				open = append(open, string(name))
			}
		case html.EndTagToken:
			require.NotEmpty(t, open)
			require.Equal(t, open[len(open)-1], string(name))
			open = open[:len(open)-1]
		default:
		}
	}
}
