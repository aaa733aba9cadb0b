package v1alpha1

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
)

// clusterctl looks at kinds with its label only. Of those it moves what a Cluster owns, by the owner references, and all objects of kinds
// with the second label: what people write is owned by nobody. What refit derives is not moved.
func TestClusterctlMovesEachKind(t *testing.T) {
	owned := map[string]bool{"MachineUpdate": true, "KnownHost": true}
	derived := map[string]bool{"PendingChange": true} // it is made again from what is moved
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		definition := crd(t, file)
		kind := definition.Spec.Names.Kind
		if derived[kind] {
			require.NotContains(t, definition.Labels, clusterctlv1.ClusterctlLabel, kind)
			continue
		}
		require.Contains(t, definition.Labels, clusterctlv1.ClusterctlLabel, kind)
		if owned[kind] {
			require.NotContains(t, definition.Labels, clusterctlv1.ClusterctlMoveLabel, "one of a Machine that is not moved would be, too: %s", kind)
			continue
		}
		require.Contains(t, definition.Labels, clusterctlv1.ClusterctlMoveLabel, kind)
	}
}
