//go:build e2e

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/test/lab"
)

// TestClusterctlTakesARelease has the real clusterctl read one out of a local repository, with some variables set and the others as they are.
func TestClusterctlTakesARelease(t *testing.T) {
	repository := filepath.Join(t.TempDir(), "runtime-extension-refit", "v0.1.0")
	require.NoError(t, release(t, repository).run())

	t.Run("as it is", func(t *testing.T) {
		objects := generated(t, repository, "REFIT_REPLICAS=3")
		kinds := map[string]int{}
		var deployment appsv1.Deployment
		for _, text := range objects {
			kind := kindOf(t, text)
			kinds[kind]++
			if kind == "Deployment" {
				require.NoError(t, yaml.UnmarshalStrict([]byte(text), &deployment))
			}
		}
		require.Equal(t, 1, kinds["ExtensionConfig"])
		require.Greater(t, kinds["CustomResourceDefinition"], 5)
		require.Equal(t, int32(3), *deployment.Spec.Replicas)
		require.Equal(t, "refit-system", deployment.Namespace)
		container := deployment.Spec.Template.Spec.Containers[0]
		require.Equal(t, "ghcr.io/capi-refit/refit:v0.1.0", container.Image)
		require.Contains(t, container.Args, "--shards=1")
		require.Equal(t, "2560Mi", container.Resources.Limits.Memory().String())
	})
	t.Run("in another namespace", func(t *testing.T) {
		kinds := map[string]int{}
		for _, text := range generated(t, repository, "REFIT_NAMESPACE=elsewhere") {
			require.NotContains(t, text, "refit-system")
			require.NotContains(t, text, "${")
			kind := kindOf(t, text)
			kinds[kind]++
			if strings.HasPrefix(kind, "ClusterRole") {
				require.Contains(t, text, "\n  name: elsewhere-refit-", "clusterctl would leave it when it deletes refit")
			}
		}
		require.Greater(t, kinds["ClusterRole"], 1)
		require.Equal(t, 1, kinds["Namespace"])
	})
}

// generated returns the objects that clusterctl makes of a release's components.
func generated(t *testing.T, repository string, env ...string) []string {
	t.Helper()
	binaries, err := lab.Build(t.Context(), t.Output(), lab.Clusterctl)
	require.NoError(t, err)
	home := t.TempDir()
	config := filepath.Join(home, "clusterctl.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil,
		"providers:\n  - name: refit\n    type: RuntimeExtensionProvider\n    url: %s\n", filepath.Join(repository, "runtime-extension-components.yaml")), 0o600))
	cmd := exec.CommandContext(t.Context(), binaries[lab.Clusterctl], "generate", "provider", "--runtime-extension", "refit:v0.1.0", "--config", config)
	cmd.Env = append(append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "CLUSTERCTL_DISABLE_VERSIONCHECK=true"), env...)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimPrefix(string(out), "---\n"), "\n---\n")
}

func kindOf(t *testing.T, text string) string {
	t.Helper()
	var o struct{ Kind string }
	require.NoError(t, yaml.Unmarshal([]byte(text), &o), "%s", text)
	return o.Kind
}
