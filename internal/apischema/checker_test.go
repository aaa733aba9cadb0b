package apischema

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestCheck(t *testing.T) {
	const good = "{apiVersion: capi-refit.dev/v1alpha1, kind: NodeDisruptionPolicy, metadata: {name: p, namespace: lab}, spec: "
	for name, c := range map[string]struct{ doc, says string }{
		"what is taken":        {good + "{files: [{path: /etc/a, actions: [{type: None}]}], soak: 5m}}", ""},
		"integers":             {good + "{probes: [{name: a, tcp: 'a:1', retries: 3}]}}", ""},
		"another version":      {"{apiVersion: capi-refit.dev/v1, kind: NodeDisruptionPolicy, metadata: {name: p}, spec: {}}", `apiVersion is "capi-refit.dev/v1" and must be "capi-refit.dev/v1alpha1"`},
		"no version":           {"{kind: NodeDisruptionPolicy, metadata: {name: p}, spec: {}}", `apiVersion is ""`},
		"another kind":         {"{apiVersion: capi-refit.dev/v1alpha1, kind: Policy, metadata: {name: p}}", `"Policy" is no kind of`},
		"no name":              {"{apiVersion: capi-refit.dev/v1alpha1, kind: NodeDisruptionPolicy, spec: {}}", `metadata.name is ""`},
		"a name in upper case": {"{apiVersion: capi-refit.dev/v1alpha1, kind: NodeDisruptionPolicy, metadata: {name: P}, spec: {}}", "metadata.name"},
		"what a pattern says":  {good + "{inertFields: [{group: infrastructure.cluster.x-k8s.io, kind: awsmachine, paths: [a]}]}}", "spec.inertFields[0].kind"},
		"what a list says":     {good + "{probes: [{name: a, tcp: 'a:1'}, {name: a, tcp: 'a:2'}]}}", "Duplicate value"},
		"what a rule says":     {good + "{probes: [{name: a}]}}", "spec.probes[0]"},
		"what is no object":    {"[]", "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			doc, err := yaml.YAMLToJSON([]byte(c.doc))
			require.NoError(t, err)
			err = (&Checker{}).Check(doc)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestCheckOfTwo(t *testing.T) {
	var c Checker
	check := func(namespace string) error {
		return c.Check([]byte(`{"apiVersion": "capi-refit.dev/v1alpha1", "kind": "ChangeManagementPolicy", "metadata": {"name": "p", "namespace": "` + namespace + `"}, "spec": {"strategy": "Permissive"}}`))
	}
	require.NoError(t, check("lab"))
	require.NoError(t, check("fleet"))
	require.ErrorContains(t, check("lab"), "more than once")
}
