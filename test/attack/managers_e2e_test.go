//go:build e2e

package attack_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// TestTheManagersPatchFitsALiveDeployment applies the patches as docs/install.md has kubectl do it, and compares with what kustomize
// makes of them.
func TestTheManagersPatchFitsALiveDeployment(t *testing.T) {
	m := startManagement(t)
	component := config(t, "components", "mtls", "manager-deployments")
	for _, dir := range []string{filepath.Join("core", "config", "default"), filepath.Join("controlplane", "kubeadm", "config", "default")} {
		shipped := filepath.Join(clusterAPI(t), dir)
		live := one[appsv1.Deployment](t, render(t, []string{shipped}, nil), "Deployment")
		require.NoError(t, m.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: live.Namespace}}))
		require.NoError(t, m.admin.Create(t.Context(), &live))
		for _, patch := range []struct {
			file string
			kind types.PatchType
		}{{"volume.yaml", types.StrategicMergePatchType}, {"args.yaml", types.JSONPatchType}} {
			content, err := os.ReadFile(filepath.Join(component, patch.file))
			require.NoError(t, err)
			content, err = yaml.YAMLToJSON(content)
			require.NoError(t, err)
			require.NoError(t, m.admin.Patch(t.Context(), &live, client.RawPatch(patch.kind, content)), "%s of %s", patch.file, live.Name)
		}
		want := one[appsv1.Deployment](t, render(t, []string{shipped}, []string{component}), "Deployment").Spec.Template.Spec
		got := live.Spec.Template.Spec
		require.Equal(t, want.Containers[0].Args, got.Containers[0].Args)
		require.ElementsMatch(t, want.Containers[0].VolumeMounts, got.Containers[0].VolumeMounts)
		var names []string
		for _, v := range got.Volumes { // they have defaults now
			names = append(names, v.Name)
		}
		require.ElementsMatch(t, []string{"cert", "refit-client"}, names)
	}
}
