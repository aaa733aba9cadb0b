package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// platformFile has a policy of the platform, for the namespaces with a label, and one of a namespace of the same name.
const platformFile = `apiVersion: capi-refit.dev/v1alpha1
kind: ClusterChangeManagementPolicy
metadata: {name: a}
spec:
  namespaceSelector: {matchLabels: {tier: prod}}
  strategy: MaintenanceSchedule
  maintenanceSchedule: {permit: [{recurrence: FREQ=WEEKLY;BYDAY=SA}]}
---
apiVersion: capi-refit.dev/v1alpha1
kind: ChangeManagementPolicy
metadata: {name: a, namespace: fleet}
spec:
  strategy: MaintenanceSchedule
  maintenanceSchedule: {permit: [{recurrence: "FREQ=WEEKLY;BYDAY=SA,SU"}]}
`

func TestPoliciesOfThePlatformAreAskedTogetherWithOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"on Sundays":           {[]string{"eval", "-f", "-", "--now", "2026-10-04T12:00:00Z"}, "closed (OutsideWindow): policy ClusterChangeManagementPolicy a: OutsideWindow; opens at 2026-10-10T00:00:00Z"},
		"of its namespaces":    {[]string{"eval", "-f", "-", "--now", "2026-10-04T12:00:00Z", "--namespace-labels", "tier=prod"}, "closed"},
		"of another namespace": {[]string{"eval", "-f", "-", "--now", "2026-10-04T12:00:00Z", "--namespace-labels", "tier=dev"}, "open (Open)"},
		"by its title":         {[]string{"eval", "-f", "-", "--now", "2026-10-04T12:00:00Z", "--policy", "ClusterChangeManagementPolicy a"}, "closed"},
		"by the name of both":  {[]string{"eval", "-f", "-", "--now", "2026-10-04T12:00:00Z", "--policy", "a"}, "closed"},
		"the next windows":     {[]string{"next", "-f", "-", "-n", "1", "--now", "2026-10-04T12:00:00Z"}, "by: ClusterChangeManagementPolicy a: maintenanceSchedule.permit[0]"},
		"simulated":            {[]string{"simulate", "-f", "-", "--now", "2026-10-04T12:00:00Z", "--weeks", "1"}, "ClusterChangeManagementPolicy a + a, UTC"},
		"all are looked at":    {[]string{"lint", "-f", "-", "--now", "2026-10-04T12:00:00Z"}, "2 policies: 0 errors, 0 warnings"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runSchedule(t, platformFile, tc.args...)
			require.NoError(t, err)
			require.Contains(t, out, tc.says)
		})
	}
}

func TestLintOfThePlatform(t *testing.T) {
	policy := func(name, spec string) string {
		return "---\napiVersion: capi-refit.dev/v1alpha1\nkind: ClusterChangeManagementPolicy\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
	}
	on := func(day, rest string) string {
		return "{strategy: MaintenanceSchedule, maintenanceSchedule: {permit: [{recurrence: FREQ=WEEKLY;BYDAY=" + day + "}]}" + rest + "}"
	}
	inFleet := "---\napiVersion: capi-refit.dev/v1alpha1\nkind: ChangeManagementPolicy\nmetadata: {name: b, namespace: fleet}\nspec: " + on("SU", "") + "\n"
	for name, tc := range map[string]struct {
		file string
		says string
		not  string
	}{
		"what the server refuses":           {policy("a", "{strategy: Manual}"), "strategy Manual needs", ""},
		"a budget of namespaces":            {policy("a", "{strategy: Permissive, budget: {stopAfterFailures: 2}}"), "only maxConcurrent can be set", ""},
		"a field that is not known":         {policy("a", "{strategy: Permissive, namespaces: {}}"), "namespaces", ""},
		"it never meets a namespace's":      {policy("a", on("SA", "")) + inFleet, "NeverMeet", ""},
		"it is for another namespace":       {policy("a", on("SA", ", namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}")) + inFleet, "0 errors", "NeverMeet"},
		"two are for different namespaces":  {policy("a", on("SA", ", namespaceSelector: {matchLabels: {tier: a}}")) + policy("b", on("SU", ", namespaceSelector: {matchLabels: {tier: b}}")), "0 errors", "NeverMeet"},
		"two that never meet are said once": {policy("a", on("SA", "")) + policy("c", on("TU", "")) + inFleet, "NeverMeet", ""},
		"what is not quoted":                {policy("a", "{strategy: Permissive, fit: Off}"), `write it as fit: "Off"`, ""},
		"of a namespace, which it has not":  {policy("a, namespace: fleet", "{strategy: Permissive}"), "1 policy: 0 errors", ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, _ := runSchedule(t, tc.file, "lint", "-f", "-", "--now", "2026-10-04T12:00:00Z")
			require.Contains(t, out, tc.says)
			if tc.not != "" {
				require.NotContains(t, out, tc.not)
			}
		})
	}
}
