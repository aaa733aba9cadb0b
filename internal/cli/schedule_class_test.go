package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScheduleByChange(t *testing.T) {
	file := filepath.Join(examplesDir, "scopes.yaml")
	const night = "2026-10-14T21:00:00Z"
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"eval": {
			[]string{"eval", "-f", file, "--now", night, "--kind", "Configuration", "--disruption", "Reload"},
			"open (Open): open until 2026-10-15T00:00:00Z",
		},
		"eval of what takes more": {
			[]string{"eval", "-f", file, "--now", night, "--kind", "Configuration", "--disruption", "Reboot"},
			"windows for changes of Configuration up to Restart don't count: this one is of Configuration and takes Reboot",
		},
		"eval of two kinds": {
			[]string{"eval", "-f", file, "--now", "2026-10-17T12:00:00Z", "--kind", "Configuration,MinorVersion"},
			"closed (OutsideWindow)",
		},
		"eval without a word": {
			[]string{"eval", "-f", file, "--now", night},
			"closed (OutsideWindow): policy by-change (windows for changes of Configuration up to Restart and changes of Configuration, PatchVersion and Image don't count: this one may be of any kind",
		},
		"next": {
			[]string{"next", "-f", file, "--now", night, "-n", "1", "--kind", "PatchVersion"},
			"1. Sat 2026-10-17 00:00 CEST to Sun 2026-10-18 00:00 CEST, 24h",
		},
		"next of some change": {
			[]string{"next", "-f", file, "--now", night, "-n", "1"},
			"by: by-change: maintenanceSchedule.permit[0]: FREQ=DAILY 22:00 4h Europe/Berlin, for changes of Configuration up to Restart",
		},
		"simulate": {
			[]string{"simulate", "-f", file, "--now", "2026-11-11T09:00:00Z", "--weeks", "1", "--kind", "MinorVersion", "--disruption", "Drain"},
			"Fri 13        " + strings.Repeat("xxxxxx ", 4) + " excluded: stay on this minor version",
		},
		"simulate of some change": {
			[]string{"simulate", "-f", file, "--now", "2026-11-11T09:00:00Z", "--weeks", "1"},
			"Fri 13        ###### ###### ###### ######\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, _ := runSchedule(t, "", tc.args...)
			require.Contains(t, out, tc.says)
		})
	}
	for _, args := range [][]string{{"--kind", "Firmware"}, {"--disruption", "restart"}} {
		for _, command := range []string{"eval", "next", "simulate", "lint"} {
			_, err := runSchedule(t, "", append([]string{command, "-f", file}, args...)...)
			require.ErrorContains(t, err, args[0]+" is \""+args[1]+"\" and can be ")
		}
	}
}

func TestLintWarnsOfChangesWithoutAWindow(t *testing.T) {
	permit := func(changes string) string { return permits("{recurrence: FREQ=DAILY"+changes+"}", "") }
	for name, tc := range map[string]struct {
		policy string
		says   []string
	}{
		"for all":          {permit(""), nil},
		"up to a limit":    {permit(", changes: {maxDisruption: Restart}"), []string{"changes that take more than Restart have no window within 1000 days"}},
		"for some kinds":   {permit(", changes: {kinds: [Configuration, PatchVersion]}"), []string{"changes of MinorVersion, Image have no window within 1000 days"}},
		"for both":         {permit(", changes: {maxDisruption: Drain, kinds: [Image]}"), []string{"changes of Configuration, PatchVersion, MinorVersion have no window within 1000 days", "changes of Image that take more than Drain have no window within 1000 days"}},
		"another for more": {permit(", changes: {maxDisruption: Restart}}, {recurrence: FREQ=WEEKLY;BYDAY=SA"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := policyFlags{all: true, files: []string{"-"}, now: "2026-10-03T20:00:00Z"}
			p, err := f.load(strings.NewReader(tc.policy))
			require.NoError(t, err)
			var says []string
			for _, found := range p.lint().Findings {
				if found.Check == "NoScope" {
					says = append(says, found.Message)
				}
				require.NotEqual(t, "Overlap", found.Check, "what is for different changes is meant to overlap")
			}
			require.Equal(t, tc.says, says)
		})
	}
}

// TestLintOfAChangeNamesThePermits demands that a permit for other changes makes none be taken for the one before it.
func TestLintOfAChangeNamesThePermits(t *testing.T) {
	out, _ := runSchedule(t, permits("{recurrence: FREQ=DAILY, changes: {kinds: [Image]}}, {recurrence: FREQ=WEEKLY;BYDAY=SA}, {recurrence: FREQ=DAILY;UNTIL=20200101}", ""),
		"lint", "-f", "-", "--now", "2026-10-03T20:00:00Z", "--kind", "Configuration")
	require.Contains(t, out, "maintenanceSchedule.permit[2]: FREQ=DAILY;UNTIL=20200101 has had its last window")
}
