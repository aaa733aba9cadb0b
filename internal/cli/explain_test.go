package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
)

// explained is a request that a manager sent: one file of a worker is changed.
var explained = filepath.Join("..", "..", "handlers", "testdata", "canupdatemachineset-file-removed.json")

func runExplain(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := newExplainCommand()
	var out bytes.Buffer
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(append([]string{}, args...)) // nil would be the arguments of the tests
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// requireExplained explains a request with objects, unless there are none, that a flag takes from standard input. It requires what is then
// said, or an error.
func requireExplained(t *testing.T, request, flag, objects string, says []string, wrong string) {
	t.Helper()
	args := []string{"-f", request}
	if objects != "" {
		args = append(args, flag, "-")
	}
	out, err := runExplain(t, objects, args...)
	if wrong != "" {
		require.ErrorContains(t, err, wrong)
		return
	}
	require.NoError(t, err)
	for _, text := range says {
		require.Contains(t, out, text)
	}
}

// policyFile writes NodeDisruptionPolicies, each with the name p1, p2, …
func policyFile(t *testing.T, specs ...string) string {
	t.Helper()
	var text strings.Builder
	for i, spec := range specs {
		text.WriteString("---\napiVersion: capi-refit.dev/v1alpha1\nkind: NodeDisruptionPolicy\nmetadata: {name: p" + string(rune('1'+i)) + ", namespace: lab}\nspec: " + spec + "\n")
	}
	name := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text.String()), 0o600))
	return name
}

func TestExplainWithPolicies(t *testing.T) {
	data, err := os.ReadFile(explained)
	require.NoError(t, err)
	var request struct {
		Current struct {
			Machines struct {
				Spec struct {
					Template struct {
						Spec struct {
							ClusterName string `json:"clusterName"`
						} `json:"spec"`
					} `json:"template"`
				} `json:"spec"`
			} `json:"machineSet"`
		} `json:"current"`
	}
	require.NoError(t, json.Unmarshal(data, &request))
	cluster := request.Current.Machines.Spec.Template.Spec.ClusterName
	require.NotEmpty(t, cluster)
	without, err := runExplain(t, "", "-f", explained)
	require.NoError(t, err)
	require.Contains(t, without, "\nVerdict: Replace\n")
	require.NotContains(t, without, "policies")
	const etc = "{files: [{path: /etc, actions: [{type: "
	for name, tc := range map[string]struct {
		specs []string
		says  []string
		not   []string
	}{
		"one that allows it": {
			[]string{etc + "None}]}]}"}, []string{"\nVerdict: InPlace\nOn the node: None\nDisruption: None\nBy the policies: p1\n"}, []string{"Note:"},
		},
		"two, of which the worse action counts": {
			[]string{etc + "None}]}]}", etc + "Drain}, {type: Restart, unit: a.service}]}]}"},
			[]string{"\nVerdict: InPlace\nOn the node: Drain, Restart a.service\nDisruption: Drain\nBy the policies: p1, p2\n"}, nil,
		},
		"two, of which one takes it back": {
			[]string{etc + "None}]}]}", etc + "Replace}]}]}"}, []string{"\nVerdict: Replace\nBy the policies: p1, p2\n", "NodeDisruptionPolicy p1, p2 says Replace"}, nil,
		},
		"one with an entry that is not safe": {
			[]string{"{files: [{path: /etc, unsafe: true, actions: [{type: None}]}]}"},
			[]string{"Verdict: InPlace", "Note: NodeDisruptionPolicy p1 says unsafe: true of files[/etc]"}, nil,
		},
		"one for control planes": {
			[]string{"{selector: {roles: [ControlPlane]}, files: [{path: /etc, actions: [{type: None}]}]}"},
			[]string{"Verdict: Replace", "Note: policy p1 does not count: it does not select the machine, a Worker, by its role and labels"}, []string{"By the policies"},
		},
		"one for some clusters": {
			[]string{"{selector: {clusters: {matchLabels: {env: prod}}}, files: [{path: /etc, actions: [{type: None}]}]}"},
			[]string{"Verdict: InPlace", "Note: policy p1 is taken to select Cluster " + cluster + ", whose labels are not known here"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runExplain(t, "", "-f", explained, "--policy", policyFile(t, tc.specs...))
			require.NoError(t, err)
			for _, text := range tc.says {
				require.Contains(t, out, text)
			}
			for _, text := range tc.not {
				require.NotContains(t, out, text)
			}
		})
	}
}

func TestExplainWithPoliciesOfAnotherNamespace(t *testing.T) {
	const list = `{kind: List, items: [{apiVersion: capi-refit.dev/v1alpha1, kind: NodeDisruptionPolicy, metadata: {name: p, namespace: other},
  spec: {files: [{path: /etc, actions: [{type: None}]}]}}]}`
	out, err := runExplain(t, list, "-f", explained, "--policy", "-")
	require.NoError(t, err)
	require.Contains(t, out, "Note: policy p does not count: it is for namespace other, and the machine is in lab")
}

func TestExplainForPrograms(t *testing.T) {
	file := policyFile(t, "{files: [{path: /etc, actions: [{type: Drain}]}]}", "{selector: {roles: [ControlPlane]}}")
	out, err := runExplain(t, "", "-f", explained, "-o", "json", "--policy", file)
	require.NoError(t, err)
	var x struct {
		Verdict    string   `json:"verdict"`
		Disruption string   `json:"disruption"`
		Actions    []string `json:"actions"`
		Policies   []string `json:"policies"`
		Notes      []string `json:"notes"`
		Fields     []struct {
			Disruption string `json:"disruption"`
		} `json:"fields"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &x))
	require.Equal(t, "InPlace", x.Verdict)
	require.Equal(t, "Drain", x.Disruption)
	require.Equal(t, []string{"Drain"}, x.Actions)
	require.Equal(t, []string{"p1"}, x.Policies)
	require.Len(t, x.Notes, 1)
	require.Equal(t, "Drain", x.Fields[0].Disruption)
}

func TestExplainRefusesPolicies(t *testing.T) {
	for name, tc := range map[string]struct{ document, want string }{
		"another kind":           {"{kind: ChangeManagementPolicy}", `"ChangeManagementPolicy" is not a NodeDisruptionPolicy`},
		"a field in other words": {"{kind: NodeDisruptionPolicy, metadata: {name: p}, spec: {file: []}}", `policy p: unknown field "spec.file"`},
		"one that can't be read": {"{kind: NodeDisruptionPolicy, metadata: {name: p}, spec: {files: [{path: /a, actions: []}]}}", "policy p: files[/a].actions: it is empty"},
		"no YAML":                {"{", "-: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := runExplain(t, tc.document, "-f", explained, "--policy", "-")
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestExplainShowsProbes(t *testing.T) {
	const all, some = "{probes: [{name: app, http: {url: 'http://127.0.0.1:8080/'}}]}", "{selector: {roles: [ControlPlane]}, probes: [{name: db, tcp: 'a:1'}]}"
	out, err := runExplain(t, "", "-f", explained, "--policy", policyFile(t, all, some))
	require.NoError(t, err)
	require.Contains(t, out, "\nAsked of the node before and after: app: GET http://127.0.0.1:8080/ (at most 10s, 2 retries), by p1\n")
	require.NotContains(t, out, "db")
	out, err = runExplain(t, "", "-f", explained, "-o", "json", "--policy", policyFile(t, all))
	require.NoError(t, err)
	require.Contains(t, out, "\"app: GET http://127.0.0.1:8080/ (at most 10s, 2 retries), by p1\"")
}

// TestExamplesOfNodeDisruptionPolicies reads those of the pages as the server does.
func TestExamplesOfNodeDisruptionPolicies(t *testing.T) {
	examples, err := filepath.Glob(filepath.Join(examplesDir, "node-disruption*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, examples)
	for _, name := range examples {
		d, err := readDisruptions(nil, explainFiles{policies: []string{name}}, disruption.BuiltinRules())
		require.NoError(t, err)
		require.NotEmpty(t, d.policies, name)
	}
}
