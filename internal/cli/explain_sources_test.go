package cli

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
)

// upgradedMachine is a request that a manager sent: v1.36.0 of a control-plane machine becomes v1.36.1.
var upgradedMachine = filepath.Join("..", "..", "handlers", "testdata", "canupdatemachine-version.json")

func TestExplainWithSources(t *testing.T) {
	const head = "apiVersion: capi-refit.dev/v1alpha1\nkind: KubernetesSource\nmetadata: {name: "
	for name, tc := range map[string]struct {
		sources string
		says    []string
		err     string
	}{
		"none":     {"", []string{"Verdict: Replace", "no KubernetesSource selects the machine"}, ""},
		"one":      {head + "a, namespace: lab}\nspec: {packages: {manager: apt}}\n", []string{"Verdict: InPlace\nOn the node: Drain\nDisruption: Drain\nBy the source: a\n"}, ""},
		"of other": {head + "a, namespace: lab}\nspec: {selector: {roles: [Worker]}, packages: {manager: apt}}\n", []string{"Verdict: Replace", "Note: source a does not count: it does not select the machine, a ControlPlane"}, ""},
		"two":      {head + "a}\nspec: {packages: {manager: apt}}\n---\n" + head + "b}\nspec: {packages: {manager: dnf}}\n", nil, "the KubernetesSources a, b select the same machine"},
		"wrong":    {head + "a}\nspec: {packages: {manager: zypper}}\n", nil, `source a: packages.manager: "zypper" is not known`},
		"a typo":   {head + "a}\nspec: {package: {manager: apt}}\n", nil, `unknown field "spec.package"`},
		"a policy": {"{kind: NodeDisruptionPolicy}", nil, `"NodeDisruptionPolicy" is not a KubernetesSource`},
	} {
		t.Run(name, func(t *testing.T) {
			requireExplained(t, upgradedMachine, "--source", tc.sources, tc.says, tc.err)
		})
	}
}

// TestExamplesOfKubernetesSources reads those of the pages as the server does.
func TestExamplesOfKubernetesSources(t *testing.T) {
	examples, err := filepath.Glob(filepath.Join(examplesDir, "kubernetes-source-*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, examples)
	for _, name := range examples {
		d, err := readDisruptions(nil, explainFiles{sources: []string{name}}, disruption.BuiltinRules())
		require.NoError(t, err)
		require.NotEmpty(t, d.sources, name)
	}
}
