package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// build returns what kustomize makes of files beside a copy of config/: the one in the directory that is named last.
func build(t *testing.T, kustomizations ...string) resmap.ResMap {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "config"), os.DirFS(".")))
	last := ""
	for i, k := range kustomizations {
		last = filepath.Join(dir, "layer"+string(rune('0'+i)))
		require.NoError(t, os.Mkdir(last, 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(last, "kustomization.yaml"), []byte(k), 0o600))
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), last)
	require.NoError(t, err)
	return built
}

// TestAnotherNamespaceIsNamedEverywhere, as docs/install.md has it.
func TestAnotherNamespaceIsNamedEverywhere(t *testing.T) {
	page, err := os.ReadFile("../docs/install.md")
	require.NoError(t, err)
	_, part, found := strings.Cut(string(page), "\n### Another namespace\n")
	require.True(t, found)
	var layers []string
	for _, block := range strings.SplitN(part, "```yaml\n", 3)[1:] {
		layer, _, _ := strings.Cut(block, "```")
		layers = append(layers, layer)
	}
	require.Len(t, layers, 2)
	layers[1] = strings.ReplaceAll(layers[1], "../refit", "../layer0")
	layers[0] = strings.Replace(layers[0], "[../config/default]", "[../config/default, ../config/prometheus]", 1)
	require.Contains(t, layers[0], "prometheus")
	layers[1] = strings.Replace(layers[1], "components: [", "components: [../config/components/watch-secrets, ", 1)
	layers[0] += "components: [../config/components/guard]\n"
	guarded := false
	built := build(t, layers...)
	require.Greater(t, built.Size(), 20)
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		require.NoError(t, err)
		require.NotContains(t, string(text), "refit-system", "%s %s", r.GetKind(), r.GetName())
		guarded = guarded || r.GetName() == "refit-guard"
	}
	require.True(t, guarded, "the guard's webhook is among them")
	requireBindingsOfRolesThatAreThere(t, built, "my-refit")
}

// requireBindingsOfRolesThatAreThere also requires that clusterctl would delete all of them with the namespace's provider: of what is for the whole
// cluster it deletes what begins with the namespace's name.
func requireBindingsOfRolesThatAreThere(t *testing.T, built resmap.ResMap, namespace string) {
	t.Helper()
	roles := map[string]bool{}
	var bound []string
	for _, r := range built.Resources() {
		if r.GetKind() != "ClusterRole" && r.GetKind() != "ClusterRoleBinding" {
			continue
		}
		require.True(t, strings.HasPrefix(r.GetName(), namespace+"-refit-"), "%s %s", r.GetKind(), r.GetName())
		if r.GetKind() == "ClusterRole" {
			roles[r.GetName()] = true
			continue
		}
		var binding rbacv1.ClusterRoleBinding
		text, err := r.AsYAML()
		require.NoError(t, err)
		require.NoError(t, yaml.UnmarshalStrict(text, &binding))
		bound = append(bound, binding.RoleRef.Name)
	}
	require.NotEmpty(t, bound)
	for _, name := range bound {
		require.True(t, roles[name], "%s is bound, and not there", name)
	}
}

// TestClusterctlsContract: what clusterctl asks of a provider's components.
func TestClusterctlsContract(t *testing.T) {
	built := build(t, "resources: [../config/default]")
	deployments, namespaces := 0, 0
	for _, r := range built.Resources() {
		require.Equal(t, "runtime-extension-refit", r.GetLabels()["cluster.x-k8s.io/provider"], "%s %s", r.GetKind(), r.GetName())
		switch r.GetKind() {
		case "Namespace":
			namespaces++
		case "Deployment":
			deployments++
			text, err := r.AsYAML()
			require.NoError(t, err)
			var d appsv1.Deployment
			require.NoError(t, yaml.UnmarshalStrict(text, &d))
			require.Len(t, d.Spec.Template.Spec.Containers, 1)
			require.Equal(t, "manager", d.Spec.Template.Spec.Containers[0].Name)
			require.Equal(t, "manager", d.Spec.Template.Annotations["kubectl.kubernetes.io/default-container"])
		}
	}
	require.Equal(t, 1, namespaces, "clusterctl knows by it where the provider is")
	require.Equal(t, 1, deployments)
	requireBindingsOfRolesThatAreThere(t, built, "refit-system")
}

// TestOptIn: Cluster API asks about machines of labelled namespaces only, until somebody widens that.
func TestOptIn(t *testing.T) {
	for components, want := range map[string]string{
		"": "\n  namespaceSelector:\n    matchLabels:\n      capi-refit.dev/in-place-updates: enabled\n",
		"components: [../config/components/all-namespaces]\n": "\n  namespaceSelector: {}\n",
	} {
		found := false
		for _, r := range build(t, "resources: [../config/default]\n"+components).Resources() {
			if r.GetKind() != "ExtensionConfig" {
				continue
			}
			found = true
			text, err := r.AsYAML()
			require.NoError(t, err)
			require.Contains(t, string(text), want)
		}
		require.True(t, found)
	}
}
