package cli

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatAPIServersRefuse: policies that API servers refuse are not said to be all right.
func TestWhatAPIServersRefuse(t *testing.T) {
	const rest = "kind: ChangeManagementPolicy\nmetadata: {name: weekends, namespace: fleet}\nspec: {strategy: Permissive, selector: {roles: ["
	const good = "apiVersion: capi-refit.dev/v1alpha1\n" + rest + "Worker]}}\n"
	for name, c := range map[string]struct{ file, says string }{
		"another version":    {"apiVersion: capi-refit.dev/v1\n" + rest + "Worker]}}\n", "must be \\\"capi-refit.dev/v1alpha1\\\""},
		"no version":         {rest + "Worker]}}\n", "must be \\\"capi-refit.dev/v1alpha1\\\""},
		"two of a name":      {good + "---\n" + good, "it is there more than once"},
		"what a schema says": {"apiVersion: capi-refit.dev/v1alpha1\n" + rest + "Worker, Worker]}}\n", "spec.selector.roles[1]: Duplicate value"},
		"of a spec alone":    {"{strategy: Permissive, selector: {roles: [Worker, Worker]}}", "spec.selector.roles[1]: Duplicate value"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runSchedule(t, c.file, "lint", "-f", "-", "-o", "json")
			require.EqualError(t, err, "1 policy is invalid")
			require.Contains(t, out, c.says)
			out, err = runSchedule(t, c.file, "eval", "-f", "-", "-o", "json")
			require.NoError(t, err)
			require.Contains(t, out, `"reason":"InvalidPolicy"`)
		})
	}
	const head = "{apiVersion: capi-refit.dev/v1alpha1, kind: NodeDisruptionPolicy, metadata: {name: p}, spec: "
	for name, c := range map[string]struct{ file, says string }{
		"another version":    {"{apiVersion: capi-refit.dev/v1, kind: NodeDisruptionPolicy, metadata: {name: p}, spec: {}}", `refuse NodeDisruptionPolicy "p": apiVersion is "capi-refit.dev/v1"`},
		"two of a name":      {head + "{}}\n---\n" + head + "{}}\n", "more than once"},
		"what a schema says": {head + "{inertFields: [{group: infrastructure.cluster.x-k8s.io, kind: awsmachine, paths: [a]}]}}", "spec.inertFields[0].kind"},
		"nothing":            {"", "-: there is no NodeDisruptionPolicy"},
	} {
		t.Run("explain: "+name, func(t *testing.T) {
			_, err := runExplain(t, c.file, "-f", explained, "--policy", "-")
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := runExplain(t, "", "-f", explained, "--source", os.DevNull)
	require.ErrorContains(t, err, "there is no KubernetesSource")
}
