package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/schedule"
)

// fleetOf are policies of a fleet, in so many namespaces, with windows of all days and hours.
func fleetOf(policies, namespaces int) string {
	var b strings.Builder
	days := strings.Fields("MO TU WE TH FR SA SU")
	for i := range policies {
		fmt.Fprintf(&b, `apiVersion: capi-refit.dev/v1alpha1
kind: ChangeManagementPolicy
metadata: {name: p%d, namespace: ns%d}
spec:
  strategy: MaintenanceSchedule
  expectedDuration: %dm
  maintenanceSchedule:
    timeZone: Europe/Berlin
    permit:
    - {recurrence: "FREQ=WEEKLY;BYDAY=%s", startTime: "%02d:00", duration: %dh}
---
`, i, i%namespaces, 5+i%50, days[i%7], i%24, 2+i%8)
	}
	return b.String()
}

// TestLintOfAFleet: policies of different namespaces select no machine together, and of thousands of pairs some are named.
func TestLintOfAFleet(t *testing.T) {
	out, err := runSchedule(t, fleetOf(100, 100), "lint", "-f", "-", "-o", "json")
	require.NoError(t, err)
	require.NotContains(t, out, "NeverMeet")
	out, err = runSchedule(t, fleetOf(100, 1), "lint", "-f", "-", "-o", "json")
	require.NoError(t, err)
	require.Equal(t, mostPairs, strings.Count(out, `"NeverMeet"`))
	require.Regexp(t, `and so have \d+ other pairs`, out)
}

func BenchmarkLintOf10000(b *testing.B) {
	file := filepath.Join(b.TempDir(), "policies.yaml")
	require.NoError(b, os.WriteFile(file, []byte(fleetOf(10000, 500)), 0o600))
	for b.Loop() {
		p, err := (&policyFlags{all: true, files: []string{file}}).load(nil)
		require.NoError(b, err)
		require.Equal(b, 10000, p.lint().Policies)
	}
}

// TestSchedulesOfAMachine asks about one machine where policies select different ones.
func TestSchedulesOfAMachine(t *testing.T) {
	roles, err := os.ReadFile(filepath.Join(docsDir, "examples", "roles.yaml"))
	require.NoError(t, err)
	const at = "2026-10-08T22:00:00Z" // a Thursday, 23:00 in London
	labelled := `{strategy: Restrictive, selector: {machines: {matchLabels: {pool: gpu}}}}
---
{strategy: Permissive, selector: {clusters: {matchLabels: {env: test}}}}`
	for name, tc := range map[string]struct {
		file       string
		args       []string
		says, fail string
		status     int
	}{
		"nobody says which":         {string(roles), nil, "", "no machine is selected by all of control-planes + workers", 2},
		"a worker":                  {string(roles), []string{"--role", "Worker"}, "open (Open): open until 2026-10-09T03:00:00Z", "", 0},
		"a control plane":           {string(roles), []string{"--role", "ControlPlane"}, "closed (OutsideWindow): policy control-planes", "", 1},
		"by name":                   {string(roles), []string{"--policy", "workers"}, "open", "", 0},
		"by the wrong name":         {string(roles), []string{"--policy", "nobody"}, "", `--policy is "nobody", and there are control-planes + workers`, 2},
		"by labels":                 {labelled, []string{"--labels", "pool=gpu", "--cluster-labels", "env=prod"}, "closed (Paused): policy 1 is restrictive", "", 1},
		"by other labels":           {labelled, []string{"--labels", "pool=web", "--cluster-labels", "env=test"}, "open (Open)", "", 0},
		"nothing selects it":        {labelled, []string{"--labels", "pool=web", "--cluster-labels", "env=prod"}, "open (Open): no policy selects the machine", "", 0},
		"of two namespaces":         {strings.ReplaceAll(string(roles), "name: workers, namespace: fleet", "name: control-planes, namespace: other"), []string{"--policy", "control-planes"}, "", "are in different namespaces", 2},
		"labels that are none":      {labelled, []string{"--labels", "pool"}, "", `--labels is "pool" and is to be such as pool=gpu,zone=a`, 2},
		"a role that is none":       {labelled, []string{"--role", "worker"}, "", `--role is "worker" and can be ControlPlane or Worker`, 2},
		"one that can't be read":    {"{strategy: MaintenanceSchedule, maintenanceSchedule: {timeZone: Mars}}", nil, "closed (InvalidPolicy)", "", 2},
		"Off without quotes":        {"{strategy: Permissive, fit: Off}", nil, `write it as fit: "Off"`, "", 2},
		"a subcommand that is none": {"", []string{"--nothing"}, "", "unknown flag", -1},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runSchedule(t, tc.file, append([]string{"eval", "-f", "-", "--now", at, "--exit-code"}, tc.args...)...)
			if tc.fail != "" {
				require.ErrorContains(t, err, tc.fail)
			}
			require.Contains(t, out, tc.says)
			if tc.status <= 0 {
				require.Equal(t, tc.status == 0, err == nil)
				return
			}
			var status *exitStatus
			require.ErrorAs(t, err, &status)
			require.Equal(t, tc.status, status.code)
		})
	}
	_, err = runSchedule(t, string(roles), "next", "-f", "-", "--role", "Worker", "--now", at)
	require.NoError(t, err)
	_, err = runSchedule(t, "", "nonsense")
	require.ErrorContains(t, err, `unknown command "nonsense"`)
}

// christmas is a calendar, as binaryData has it.
const christmas = "QkVHSU46VkNBTEVOREFSDQpWRVJTSU9OOjIuMA0KQkVHSU46VkVWRU5UDQpVSUQ6MQ0KRFRTVEFSVDtWQUxVRT1EQVRFOjIwMjYxMjI1DQpFTkQ6VkVWRU5UDQpFTkQ6VkNBTEVOREFSDQo="

// TestSchedulesOfADirectory reads policies among what else a repository has.
func TestSchedulesOfADirectory(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"policy.yaml":  "apiVersion: capi-refit.dev/v1alpha1\nkind: ChangeManagementPolicy\nmetadata: {name: a, namespace: fleet}\nspec:\n  strategy: MaintenanceSchedule\n  maintenanceSchedule: {exclude: [{calendar: {configMap: {name: holidays, key: c.ics}}}]}\n",
		"cluster.yaml": "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: c1}\n",
		// A ConfigMap of the same name in another namespace, and one with the calendar in binaryData.
		"other.yaml":         "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: holidays, namespace: other}\ndata: {c.ics: nonsense}\n",
		"holidays.yml":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: holidays, namespace: fleet}\nbinaryData: {c.ics: " + christmas + "}\n",
		"kustomization.yaml": "resources: [policy.yaml]\n",
		"README.md":          "no YAML: [",
		"values.yaml":        "data: {replicas: 3}\nitems: {a: b}\n---\n[a, b]\n---\nkind: 3\n",
		"deployment.yaml":    "apiVersion: apps/v1\nkind: Deployment\ndata: 3\nmetadata: [a]\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	out, err := runSchedule(t, "", "eval", "-f", dir, "--now", "2026-12-25T12:00:00Z")
	require.NoError(t, err)
	require.Contains(t, out, "closed (Excluded)")
	_, err = runSchedule(t, "", "eval", "-f", t.TempDir())
	require.ErrorContains(t, err, "there is no ChangeManagementPolicy")
}

// TestLintOfRecurrences warns of what may not be meant.
func TestLintOfRecurrences(t *testing.T) {
	for name, tc := range map[string]struct {
		permit string
		checks []string
	}{
		"nothing is wrong":         {`{recurrence: FREQ=WEEKLY;BYDAY=SA, duration: 12h}`, nil},
		"February 29":              {`{recurrence: FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29, duration: 12h}`, nil},
		"February 30":              {`{recurrence: FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30, duration: 12h}`, []string{"NoDate"}},
		"it has had its last":      {`{recurrence: FREQ=WEEKLY;BYDAY=SA;UNTIL=20260901T000000Z, duration: 12h}`, []string{"Over"}},
		"it had its last long ago": {`{recurrence: FREQ=WEEKLY;BYDAY=SA;UNTIL=20100901T000000Z, duration: 12h}`, []string{"Over"}},
		"weekly":                   {`{recurrence: FREQ=WEEKLY, duration: 12h}`, []string{"NoDay"}},
		"weekly from a day on":     {`{recurrence: FREQ=WEEKLY, startDate: 2026-10-03, duration: 12h}`, nil},
		"each second week":         {`{recurrence: FREQ=WEEKLY;BYDAY=SA;INTERVAL=2, duration: 12h}`, []string{"NoStart"}},
		"each tenth week":          {`{recurrence: FREQ=WEEKLY;BYDAY=SA;INTERVAL=10, duration: 12h}`, []string{"NoStart"}},
		"each week":                {`{recurrence: FREQ=WEEKLY;BYDAY=SA;INTERVAL=1, duration: 12h}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := loadPolicies(strings.NewReader(permits(tc.permit, "")), []string{"-"}, october, (*schedule.Schedule).Widest)
			require.NoError(t, err)
			var checks []string
			for _, f := range p.only(p.schedules[0]).recurrences() {
				checks = append(checks, f.Check)
			}
			require.Equal(t, tc.checks, checks)
		})
	}
}
