package explain

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		kinds []string
	}{
		"nothing":         {"", nil},
		"empty documents": {"---\n---\n# nothing\n---\nkind: A\n---\n", []string{"A"}},
		"a list":          {"apiVersion: v1\nkind: List\nitems: [{kind: A}, {kind: B}, null]", []string{"A", "B"}},
		"a list of lists": {"kind: List\nitems: [{kind: AList, items: [{kind: A}]}]", []string{"A"}},
		"JSON":            {`{"kind": "A"}`, []string{"A"}},
		"no object":       {"just a text", []string{""}},
		"a sequence":      {"[1, 2]", []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := Read([]byte(c.text))
			require.NoError(t, err)
			var kinds []string
			for _, o := range objects {
				kinds = append(kinds, o.GetKind())
			}
			require.Equal(t, c.kinds, kinds)
			_, err = NewSet(objects...)
			require.NoError(t, err)
		})
	}
}

func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no YAML":             "a: {",
		"a field twice":       "kind: A\nkind: B",
		"a spec of no fields": "kind: A\nspec: text",
		"metadata of none":    "kind: A\nmetadata: [1]",
		"too deep":            "kind: A\nspec: " + strings.Repeat("{a: ", 200) + "1" + strings.Repeat("}", 200),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read([]byte(text))
			require.Error(t, err)
		})
	}
}

// TestReadLeavesNothingOut: what was left out would be taken for what is not there.
func TestReadLeavesNothingOut(t *testing.T) {
	for name, text := range map[string]string{
		"values of JSON":         `{"kind": "A"}` + "\n" + `{"kind": "B"}`,
		"in one line":            `{"kind": "A"} {"kind": "B"}`,
		"sequences":              "[1]\n[2]",
		"what ends a document":   "kind: A\n...\nkind: B",
		"what begins in a line":  "kind: A\n--- {kind: B}",
		"a tag where one begins": "--- !x\nkind: A\n--- !x\nkind: B",
		"null before":            "null\n--- {kind: B}",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read([]byte("kind: C\n---\n" + text))
			require.ErrorContains(t, err, "document 2: ")
		})
	}
	objects, err := Read([]byte("kind: A\n...\n---\n# nothing\n---\n--- # two\nkind: B\n...\n"))
	require.NoError(t, err)
	require.Len(t, objects, 2)
}

func TestSetRefuses(t *testing.T) {
	const deployment = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment\nmetadata: {name: workers, namespace: fleet}"
	s, err := NewSet(objectOf(t, deployment))
	require.NoError(t, err)
	require.ErrorContains(t, s.Add(objectOf(t, deployment)), "MachineDeployment fleet/workers is there twice")
	require.ErrorContains(t, s.Add(objectOf(t, strings.ReplaceAll(deployment, "v1beta2", "v1beta1"))), "refit reads v1beta2 only")
	require.ErrorContains(t, s.Add(objectOf(t, "apiVersion: cluster.x-k8s.io/v1beta1\nkind: ClusterClass\nmetadata: {name: c}")), "kubectl get clusterclasses.v1beta2.cluster.x-k8s.io c -o yaml")
	require.ErrorContains(t, s.Add(objectOf(t, "apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment")), "has no name")
	require.NoError(t, s.Add(objectOf(t, "apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: AcmeMachineTemplate\nmetadata: {name: a}")), "providers have versions of their own")
}

func TestSetRefusesReplicas(t *testing.T) {
	for _, n := range []string{"-4", "2147483648", "99999999999", "1e30", "2.5", "'3'", "[3]"} {
		for says, words := range map[string][2]string{
			"spec.replicas of MachineDeployment fleet/workers":                                 {base, "replicas: 4"},
			"spec.replicas of KubeadmControlPlane fleet/cp":                                    {base, "replicas: 3"},
			"spec.topology.controlPlane.replicas of Cluster fleet/prod":                        {topology, "replicas: 3"},
			"spec.topology.workers.machineDeployments[0].replicas of Cluster fleet/prod is no": {topology, "replicas: 2"},
		} {
			objects, err := Read([]byte(strings.Replace(words[0], words[1], "replicas: "+n, 1)))
			require.NoError(t, err)
			_, err = NewSet(objects...)
			require.ErrorContains(t, err, says)
		}
	}
	set(t, base, "replicas: 4", "replicas: 2147483647", "replicas: 3", "replicas: null")
}

func TestWhatIsLeftOutIsNamed(t *testing.T) {
	more := base + "---\napiVersion: v1\nkind: Service\n---\napiVersion: v1\nkind: Service\n---\napiVersion: infrastructure.cluster.x-k8s.io/v1beta2\nkind: DevClusterTemplate\n---\ntext\n"
	f := compare(t, set(t, base), set(t, more))
	require.Equal(t, []string{"left out, since refit knows nothing of them that concerns machines: DevClusterTemplate (1), Service (2), documents that are no objects (1)"}, f.Notes)
}
