package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// permits is the spec of a policy with permits, in JSON.
func permits(list, rest string) string {
	return "{strategy: MaintenanceSchedule, maintenanceSchedule: {permit: [" + list + "]}" + rest + "}\n"
}

func TestFieldsThatAreNotKnown(t *testing.T) {
	for name, test := range map[string]struct{ spec, want string }{
		"of the schedule":  {"{strategy: Permissive, maintenanceSchedule: {permti: []}}", "maintenanceSchedule.permti"},
		"of the budget":    {"{strategy: Permissive, budget: {maxConcurent: 3}}", "budget.maxConcurent"},
		"in another case":  {"{strategy: Permissive, whenclosed: Refuse}", "whenclosed"},
		"that don't exist": {"{strategy: Permissive, replacement: Never}", "replacement"},
	} {
		t.Run(name, func(t *testing.T) {
			docs, err := readPolicies(strings.NewReader(test.spec), []string{"-"}, time.Now())
			require.NoError(t, err)
			require.ErrorContains(t, docs.schedules()[0].Err(time.Now()), test.want)
		})
	}
}

func TestPoliciesForDifferentMachinesNeedNotMeet(t *testing.T) {
	const one = "{strategy: MaintenanceSchedule, maintenanceSchedule: {permit: [{recurrence: FREQ=WEEKLY;BYDAY=%s}]}, selector: %s}\n---\n"
	for name, test := range map[string]struct {
		a, b string
		warn bool
	}{
		"the same machines":    {"{}", "{}", true},
		"one for all":          {"{}", "{roles: [Worker]}", true},
		"other roles":          {"{roles: [ControlPlane]}", "{roles: [Worker]}", false},
		"other clusters":       {"{clusters: {matchLabels: {region: eu}}}", "{clusters: {matchLabels: {region: us}}}", false},
		"labels of other keys": {"{machines: {matchLabels: {a: b}}}", "{machines: {matchLabels: {b: a}}}", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := policyFlags{all: true, files: []string{"-"}, now: "2026-10-03T20:00:00Z"}
			p, err := f.load(strings.NewReader(fmt.Sprintf(one, "SA", test.a) + fmt.Sprintf(one, "SU", test.b)))
			require.NoError(t, err)
			require.Equal(t, test.warn, len(p.neverMeet()) > 0)
		})
	}
}

func TestScheduleLint(t *testing.T) {
	const (
		saturdays = `{recurrence: FREQ=WEEKLY;BYDAY=SA, startTime: "10:00", duration: 20h}`
		sundays   = `{recurrence: FREQ=WEEKLY;BYDAY=SU, startTime: "10:00", duration: 20h}`
		early     = `{recurrence: FREQ=WEEKLY;BYDAY=SU, startTime: "05:00", duration: 2h}`
		touches   = `{recurrence: FREQ=WEEKLY;BYDAY=SU, startTime: "06:00", duration: 2h}`
		daily     = `{recurrence: FREQ=DAILY, startTime: "10:00", duration: 30m}, {recurrence: FREQ=DAILY, startTime: "20:00", duration: 3h}`
		wednesday = `{recurrence: FREQ=WEEKLY;BYDAY=WE, startTime: "09:00", duration: 16h}`
	)
	for name, c := range map[string]struct {
		file string
		want []finding
	}{
		"nothing is wrong":           {permits(saturdays, ", expectedDuration: 20h"), nil},
		"never, and that is meant":   {"strategy: Restrictive", nil},
		"permits that only touch":    {permits(saturdays+","+touches, ""), nil},
		"too short, and no one asks": {permits(daily, ", expectedDuration: 1h, fit: 'Off'"), nil},
		"a policy that can't be read": {"{strategy: MaintenanceSchedule, maintenanceSchedule: {timeZone: Mars}}", []finding{{
			lintError, "Invalid", "1", "maintenanceSchedule.timeZone", `"Mars" is not an IANA time zone`,
			"Put it right: until then the policy is closed, and no change starts on the machines that it selects.",
		}}},
		"too little time": {permits(`{recurrence: FREQ=WEEKLY;BYDAY=SA, duration: 9h}`, ""), []finding{{
			lintWarning, "LittleTime", "1", "maintenanceSchedule",
			"open for 45h of the 32 days from Thu 2026-10-01 12:00 UTC on, which is less than 48h",
			"Permit more or longer windows, or exclude less: updates may not get through all machines in time.",
		}}},
		"neither permits nor excludes": {"strategy: MaintenanceSchedule", []finding{{
			lintWarning, "LittleTime", "1", "maintenanceSchedule",
			"open for 0s of the 32 days from Thu 2026-10-01 12:00 UTC on, which is less than 48h",
			"Permit more or longer windows, or exclude less: updates may not get through all machines in time.",
		}}},
		"permits that overlap": {permits(saturdays+","+early, ""), []finding{{
			lintWarning, "Overlap", "1", "maintenanceSchedule.permit[1]",
			"FREQ=WEEKLY;BYDAY=SU 05:00 2h UTC overlaps maintenanceSchedule.permit[0], FREQ=WEEKLY;BYDAY=SA 10:00 20h UTC: " +
				"first Sun 2026-10-04 05:00 UTC to Sun 2026-10-04 06:00 UTC",
			"They are joined to one window. Drop one of them, or shorten the earlier one, so that each can be read by itself.",
		}}},
		"windows that are too short": {permits(daily, ", expectedDuration: 1h"), []finding{{
			lintWarning, "TooShort", "1", "expectedDuration",
			"1000 of 2000 windows within 1000 days are shorter than the 1h that an update is expected to take: " +
				"first Fri 2026-10-02 10:00 UTC to Fri 2026-10-02 10:30 UTC",
			"Lengthen the windows, or put the duration right that is expected. With fit: Required no update starts in them.",
		}}},
		"policies that never meet": {permits(saturdays, "") + "---\n" + permits(sundays, "") + "---\n" + permits(saturdays, ""), []finding{
			{
				lintWarning, "NeverMeet", "1 + 2", "maintenanceSchedule.permit", "each has windows, but within 1000 days they have none together",
				"Let the windows meet, mind the time zones, or select different machines: one that all of them select never changes.",
			},
			{
				lintWarning, "NeverMeet", "2 + 3", "maintenanceSchedule.permit", "each has windows, but within 1000 days they have none together",
				"Let the windows meet, mind the time zones, or select different machines: one that all of them select never changes.",
			},
		}},
		"three of which each two meet": {
			permits(saturdays+","+sundays, "") + "---\n" + permits(saturdays+","+wednesday, "") + "---\n" + permits(sundays+","+wednesday, ""), []finding{{
				lintWarning, "NeverMeet", "1 + 2 + 3", "maintenanceSchedule.permit", "each has windows, but within 1000 days they have none together",
				"Let the windows meet, mind the time zones, or select different machines: one that all of them select never changes.",
			}},
		},
		"too little time together": {
			permits(`{recurrence: FREQ=WEEKLY;BYDAY=SA}`, "") + "---\n" + permits(`{recurrence: FREQ=WEEKLY;BYDAY=SA, startTime: "18:00", duration: 24h}`, ""), []finding{{
				lintWarning, "LittleTime", "1 + 2", "maintenanceSchedule",
				"open for 30h of the 32 days from Thu 2026-10-01 12:00 UTC on, which is less than 48h",
				"Permit more or longer windows, or exclude less: updates may not get through all machines in time.",
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runSchedule(t, c.file, "lint", "-f", "-", "--now", "2026-10-01T12:00:00Z", "-o", "json")
			var report lintReport
			require.NoError(t, json.Unmarshal([]byte(out), &report))
			require.Equal(t, append([]finding{}, c.want...), report.Findings)
			if report.count(lintError) > 0 {
				require.EqualError(t, err, "1 policy is invalid")
			} else {
				require.NoError(t, err)
			}
			_, err = runSchedule(t, c.file, "lint", "-f", "-", "--now", "2026-10-01T12:00:00Z", "--strict")
			require.Equal(t, len(c.want) > 0, err != nil, "%v", err)
		})
	}
}

func TestScheduleLintInWords(t *testing.T) {
	file := permits("", "") + "---\n" + permits("{recurrence: FREQ=HOURLY}", "")
	out, err := runSchedule(t, file, "lint", "-f", "-", "--now", "2026-10-01T12:00:00Z")
	require.EqualError(t, err, "1 policy is invalid")
	require.Equal(t, `warning (LittleTime): 1: maintenanceSchedule: open for 0s of the 32 days from Thu 2026-10-01 12:00 UTC on, which is less than 48h.
  Permit more or longer windows, or exclude less: updates may not get through all machines in time.
error (Invalid): 2: maintenanceSchedule.permit[0].recurrence: FREQ=HOURLY: DAILY, WEEKLY, MONTHLY or YEARLY.
  Put it right: until then the policy is closed, and no change starts on the machines that it selects.
2 policies: 1 error, 1 warning
`, out)
}
