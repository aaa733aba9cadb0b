//go:build e2e

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/capi-refit/refit/test/lab"
)

// TestClusterctlTakesARelease has the real clusterctl read one out of a local repository, with a variable set and the others as they are.
func TestClusterctlTakesARelease(t *testing.T) {
	binaries, err := lab.Build(t.Context(), t.Output(), lab.Clusterctl)
	require.NoError(t, err)
	repository := filepath.Join(t.TempDir(), "runtime-extension-refit", "v0.1.0")
	require.NoError(t, release(t, repository).run())
	home := t.TempDir()
	config := filepath.Join(home, "clusterctl.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil,
		"providers:\n  - name: refit\n    type: RuntimeExtensionProvider\n    url: %s\n", filepath.Join(repository, "runtime-extension-components.yaml")), 0o600))
	cmd := exec.CommandContext(t.Context(), binaries[lab.Clusterctl], "generate", "provider", "--runtime-extension", "refit:v0.1.0", "--config", config)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "REFIT_REPLICAS=3")
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kinds := map[string]int{}
	var deployment appsv1.Deployment
	for d := utilyaml.NewYAMLOrJSONDecoder(out, 4096); ; {
		var o unstructured.Unstructured
		if err := d.Decode(&o.Object); err != nil || o.Object == nil {
			break
		}
		kinds[o.GetKind()]++
		if o.GetKind() == "Deployment" {
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &deployment))
		}
	}
	require.NoError(t, cmd.Wait())
	require.Equal(t, 1, kinds["ExtensionConfig"])
	require.Greater(t, kinds["CustomResourceDefinition"], 5)
	require.Equal(t, int32(3), *deployment.Spec.Replicas)
	container := deployment.Spec.Template.Spec.Containers[0]
	require.Equal(t, "ghcr.io/capi-refit/refit:v0.1.0", container.Image)
	require.Contains(t, container.Args, "--shards=1")
	require.Equal(t, "2Gi", container.Resources.Limits.Memory().String())
}
