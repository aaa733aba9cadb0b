package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func runSchedule(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := newScheduleCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

const weekendsSpec = `strategy: MaintenanceSchedule
maintenanceSchedule: {permit: [{recurrence: FREQ=WEEKLY;BYDAY=SA, startTime: "20:00", duration: 8h}]}`

func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") }

func TestScheduleEval(t *testing.T) {
	object := "apiVersion: capi-refit.dev/v1alpha1\nkind: ChangeManagementPolicy\nmetadata: {name: weekends}\nspec:\n" + indent(weekendsSpec)
	open := `{"open":true,"reason":"Open","nextChangeETASeconds":0,"permissiveRemainingSeconds":28800,` +
		`"window":["2026-10-03T20:00:00Z","2026-10-04T04:00:00Z"],"message":"open until 2026-10-04T04:00:00Z"}`
	calendar := `---
kind: ConfigMap
metadata: {name: holidays}
data:
  x.ics: |
    BEGIN:VCALENDAR
    BEGIN:VEVENT
    DTSTART;VALUE=DATE:20261003
    END:VEVENT
    END:VCALENDAR
---
strategy: MaintenanceSchedule
maintenanceSchedule: {exclude: [{calendar: {configMap: {name: holidays, key: x.ics}, maxAge: 24h}}]}
`
	for name, c := range map[string]struct{ file, says string }{
		"a spec":                        {weekendsSpec, open},
		"an object":                     {object, open},
		"a list":                        {"-" + indent(weekendsSpec)[1:], open},
		"two documents":                 {object + "\n---\n" + weekendsSpec, open},
		"one of two is closed":          {weekendsSpec + "\n---\nstrategy: Restrictive\n", `"reason":"Paused"`},
		"a calendar from a ConfigMap":   {calendar, `"window":["2026-10-04T00:00:00Z",null]`},
		"a field that is not known":     {"strateggy: Permissive", `"reason":"InvalidPolicy","nextChangeETASeconds":-2`},
		"a field of the API, not known": {"strategy: Permissive\nbudget: {maxConcurrent: 3}", `"permissiveRemainingSeconds":-1`},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runSchedule(t, c.file, "eval", "-f", "-", "--now", "2026-10-03T20:00:00Z", "-o", "json")
			require.NoError(t, err)
			require.Contains(t, out, c.says)
		})
	}
	t.Run("an update that takes too long", func(t *testing.T) {
		out, err := runSchedule(t, weekendsSpec, "eval", "-f", "-", "--now", "2026-10-03T20:00:00Z", "--expected-duration", "9h")
		require.NoError(t, err)
		require.Contains(t, out, "closed (NeverFits)")
	})
}

func TestScheduleEvalOfWorkedCases(t *testing.T) {
	vectors := filepath.Join("..", "..", "schedule", "testdata", "vectors.json")
	out, err := runSchedule(t, "", "eval", "--vectors", vectors)
	require.NoError(t, err)
	require.Equal(t, "57 of 57 cases agree\n", out)

	data, err := os.ReadFile(vectors)
	require.NoError(t, err)
	wrong := strings.Replace(string(data), `"nextChangeETASeconds": 1,`, `"nextChangeETASeconds": 2,`, 1)
	out, err = runSchedule(t, wrong, "eval", "--vectors", "-")
	require.ErrorContains(t, err, "1 cases differ")
	require.Contains(t, out, "rounds up, so that zero means now: nextChangeETASeconds is 1, expected 2")
}
