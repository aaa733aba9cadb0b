package handlers

import (
	"go/build"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHeldNodesAreAnsweredAsFreeOnes is case 31 of node leases: a "no" to CanUpdate* would replace the very node that somebody
// holds. Neither the hooks nor the policies that they ask can know of leases, since they don't import them.
func TestHeldNodesAreAnsweredAsFreeOnes(t *testing.T) {
	for _, dir := range []string{".", "../updaters", "../updaters/files", "../internal/fieldset", "../internal/changemanagement"} {
		p, err := build.ImportDir(dir, 0)
		require.NoError(t, err)
		for _, knows := range []string{"lease", "slots", "workload", "machineupdate"} {
			require.NotContains(t, p.Imports, "github.com/capi-refit/refit/internal/"+knows, dir)
		}
	}
}
