package cli

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var policiesFile = filepath.Join("testdata", "policies.yaml")

func TestScheduleNext(t *testing.T) {
	out, err := runSchedule(t, "", "next", "-f", policiesFile, "-n", "3", "--now", "2026-10-24T19:00:00Z")
	require.NoError(t, err)
	require.Equal(t, `1. Sat 2026-10-24 20:00 CEST to Sun 2026-10-25 00:00 CEST, 4h, open now
   UTC: 2026-10-24T18:00:00Z to 2026-10-24T22:00:00Z
   by: weekends: maintenanceSchedule.permit[0]: FREQ=WEEKLY;BYDAY=SA 20:00 32h Europe/Berlin
   ends early for weekends: maintenanceSchedule.exclude[0]: 2026-10-25 until 2026-10-26 Europe/Berlin (fair & <festival>)
2. Mon 2026-10-26 00:00 CET to Mon 2026-10-26 03:00 CET, 3h
   UTC: 2026-10-25T23:00:00Z to 2026-10-26T02:00:00Z
   by: weekends: maintenanceSchedule.permit[0]: FREQ=WEEKLY;BYDAY=SA 20:00 32h Europe/Berlin
   starts late for weekends: maintenanceSchedule.exclude[0]: 2026-10-25 until 2026-10-26 Europe/Berlin (fair & <festival>)
3. Wed 2026-10-28 10:15 CET to Wed 2026-10-28 11:45 CET, 1h30m
   UTC: 2026-10-28T09:15:00Z to 2026-10-28T10:45:00Z
   by: weekends: maintenanceSchedule.permit[1]: FREQ=MONTHLY;BYMONTHDAY=28 10:15 90m Europe/Berlin
`, out)
}

func TestScheduleNextForPrograms(t *testing.T) {
	out, err := runSchedule(t, "", "next", "-f", policiesFile, "-n", "1", "--now", "2026-10-24T19:00:00Z", "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, `{
		"now": "2026-10-24T19:00:00Z", "timeZone": "Europe/Berlin",
		"windows": [{
			"start": "2026-10-24T18:00:00Z", "end": "2026-10-24T22:00:00Z",
			"localStart": "2026-10-24T20:00:00+02:00", "localEnd": "2026-10-25T00:00:00+02:00", "lengthSeconds": 14400,
			"permits": [{"policy": "weekends", "field": "maintenanceSchedule.permit[0]",
				"rule": "FREQ=WEEKLY;BYDAY=SA 20:00 32h Europe/Berlin"}],
			"endsEarlyFor": [{"policy": "weekends", "field": "maintenanceSchedule.exclude[0]",
				"rule": "2026-10-25 until 2026-10-26 Europe/Berlin", "reason": "fair & <festival>"}],
			"fits": true
		}],
		"reason": "Open", "message": "open until 2026-10-24T22:00:00Z"
	}`, out)
	out, err = runSchedule(t, "strategy: Permissive", "next", "-f", "-", "--now", "2026-10-24T19:00:00Z", "-o", "json")
	require.NoError(t, err)
	require.Contains(t, out, `"start": null`)
}

// weekly is the spec of a policy that opens on some days of the week.
func weekly(days, start, duration string) string {
	return "strategy: MaintenanceSchedule\nmaintenanceSchedule: {permit: [{recurrence: FREQ=WEEKLY;BYDAY=" + days +
		", startTime: \"" + start + "\", duration: " + duration + "}]}\n"
}

func TestScheduleNextSays(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		args []string
		says []string
	}{
		"always":                  {"strategy: Permissive", nil, []string{"1. always, open now\n   UTC: always\n   by: 1: strategy: Permissive\n"}},
		"never":                   {"strategy: Restrictive", nil, []string{"There is no window (Paused): policy 1 is restrictive.\n"}},
		"from then on":            {"strategy: MaintenanceSchedule\nmaintenanceSchedule: {exclude: [{from: 2026-10-01}]}", nil, []string{"1. from Fri 2026-10-02 00:00 UTC on\n"}},
		"in another zone":         {weekly("SA", "20:00", "8h"), []string{"--time-zone", "Asia/Tokyo"}, []string{"1. Sun 2026-10-04 05:00 JST to Sun 2026-10-04 13:00 JST, 8h\n"}},
		"policies that meet":      {weekly("SA", "20:00", "8h") + "---\n" + weekly("SU", "02:00", "8h"), nil, []string{"1. Sun 2026-10-04 02:00 UTC to Sun 2026-10-04 04:00 UTC, 2h\n", "by: 1: ", "by: 2: "}},
		"policies that never do":  {weekly("SA", "20:00", "2h") + "---\n" + weekly("SU", "02:00", "8h"), nil, []string{"There is no window (NoWindowWithinHorizon): ", "By itself, 1 is open next: Sat 2026-10-03 20:00", "By itself, 2 is open next: Sun 2026-10-04 02:00"}},
		"a window that is short":  {"expectedDuration: 3h\n" + weekly("SA", "20:00", "2h"), nil, []string{"too short for an update, which is expected to take 3h\n"}},
		"no more than were asked": {weekly("SA", "20:00", "2h"), []string{"-n", "2"}, []string{"\n2. "}},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runSchedule(t, c.file, append([]string{"next", "-f", "-", "--now", "2026-10-01T12:00:00Z"}, c.args...)...)
			require.NoError(t, err)
			for _, says := range c.says {
				require.Contains(t, out, says)
			}
			require.NotContains(t, out, "\n6. ")
		})
	}
}

func TestScheduleCommandsRefuse(t *testing.T) {
	ok, bad := weekly("SA", "20:00", "8h"), weekly("SX", "20:00", "8h")
	for name, c := range map[string]struct {
		file string
		args []string
		says string
	}{
		"a policy that can't be read":      {ok + "---\n" + bad, []string{"next"}, "policy 2 is invalid, and so closed: maintenanceSchedule.permit[0].recurrence: "},
		"to draw one":                      {bad, []string{"simulate"}, "policy 1 is invalid, and so closed: maintenanceSchedule.permit[0].recurrence: "},
		"a file without a policy":          {"kind: ConfigMap", []string{"lint"}, "there is no ChangeManagementPolicy"},
		"an instant that is none":          {ok, []string{"next", "--now", "tomorrow"}, `--now is "tomorrow"`},
		"a zone that is none":              {ok, []string{"next", "--time-zone", "Mars"}, `--time-zone is "Mars"`},
		"an output that is not known":      {ok, []string{"lint", "-o", "xml"}, `--output is "xml"`},
		"no windows":                       {ok, []string{"next", "-n", "0"}, "--number is 0"},
		"no weeks":                         {ok, []string{"simulate", "--weeks", "0"}, "--weeks is 0"},
		"changes that are not there":       {ok, []string{"simulate", "--with", "testdata/none.yaml"}, "none.yaml"},
		"changes that can't be read":       {ok, []string{"simulate", "--with", "testdata/invalid.yaml"}, "testdata/invalid.yaml: policy weekends is invalid"},
		"a page and JSON at the same time": {ok, []string{"simulate", "--html", "x.html", "-o", "json"}, "none of the others can be"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runSchedule(t, c.file, append(c.args, "-f", "-")...)
			require.ErrorContains(t, err, c.says)
			require.Empty(t, out)
		})
	}
}
