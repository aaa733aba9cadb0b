package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// imageRequest is a request that a manager sent, but of Metal3 machines of which nothing but the image changes.
func imageRequest(t *testing.T) string {
	data, err := os.ReadFile(explained)
	require.NoError(t, err)
	var request map[string]any
	require.NoError(t, json.Unmarshal(data, &request))
	current, _ := request["current"].(map[string]any)
	side := func(url string) map[string]any {
		return map[string]any{
			"machineSet": current["machineSet"], "bootstrapConfigTemplate": current["bootstrapConfigTemplate"],
			"infrastructureMachineTemplate": map[string]any{
				"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3MachineTemplate",
				"metadata": map[string]any{"name": "workers", "namespace": "lab"},
				"spec":     map[string]any{"template": map[string]any{"spec": map[string]any{"image": map[string]any{"url": url}}}},
			},
		}
	}
	request["current"], request["desired"] = side("https://images.example/os-1.qcow2"), side("https://images.example/os-2.qcow2")
	data, err = json.Marshal(request)
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "request.json")
	require.NoError(t, os.WriteFile(name, data, 0o600))
	return name
}

func TestExplainWithBootImagePolicies(t *testing.T) {
	const head = "apiVersion: capi-refit.dev/v1alpha1\nkind: BootImagePolicy\nmetadata: {name: "
	for name, tc := range map[string]struct {
		policies string
		says     []string
		err      string
	}{
		"none":                 {"", []string{"Verdict: Replace", "no BootImagePolicy selects the machine"}, ""},
		"one lets it change":   {head + "a, namespace: lab}\nspec: {selection: {mode: All}}\n", []string{"Verdict: InPlace", "\nBy the BootImagePolicies: a\n"}, ""},
		"one keeps it":         {head + "b}\nspec: {selection: {mode: All}}\n---\n" + head + "a}\nspec: {selection: {mode: None}}\n", []string{"Verdict: Replace", "\nBy the BootImagePolicies: a, b\n"}, ""},
		"of control planes":    {head + "a}\nspec: {selector: {roles: [ControlPlane]}, selection: {mode: All}}\n", []string{"Verdict: Replace", "Note: BootImagePolicy a does not count: it does not select the machine, a Worker"}, ""},
		"of another namespace": {head + "a, namespace: other}\nspec: {selection: {mode: All}}\n", []string{"Verdict: Replace", "Note: BootImagePolicy a does not count: it is for namespace other"}, ""},
		"wrong":                {head + "a}\nspec: {selection: {mode: Some}}\n", nil, `policy a: selection.mode: "Some" is not known`},
		"a typo":               {head + "a}\nspec: {selections: {mode: All}}\n", nil, `unknown field "spec.selections"`},
	} {
		t.Run(name, func(t *testing.T) {
			requireExplained(t, imageRequest(t), "--boot-image-policy", tc.policies, tc.says, tc.err)
		})
	}
}

// TestExplainNamesBootImagePoliciesOfImagesOnly has only a file change.
func TestExplainNamesBootImagePoliciesOfImagesOnly(t *testing.T) {
	out, err := runExplain(t, "{apiVersion: capi-refit.dev/v1alpha1, kind: BootImagePolicy, metadata: {name: a, namespace: other}, spec: {selection: {mode: All}}}",
		"-f", explained, "--boot-image-policy", "-")
	require.NoError(t, err)
	require.NotContains(t, out, "BootImagePolic")
}
