//go:build e2e

package attack

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/test/nodes"
	"github.com/capi-refit/refit/test/nodes/nodestest"
)

// TestANodesUserAttacksARealNode runs, as root on a Debian machine, the attacks for which a user has to be somebody else than the agent.
func TestANodesUserAttacksARealNode(t *testing.T) {
	n := nodestest.Start(t, nodes.Options{Names: []string{"debian"}}).Node("debian")
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	const program = "/usr/local/sbin/refit-attack"
	require.NoError(t, n.WriteFile(t.Context(), program, nodes.File{Content: self, Mode: "0755", Owner: "root:root"}))
	attacks := []string{
		"TestAUserWhoExchangesADirectoryGetsNothingIntoRootsDirectories", "TestAUserWhoExchangesADirectoryHasRootReadNothingElse",
		"TestAUserWhoExchangesADirectoryMisleadsNoRollback", "TestAUserWhoExchangesTheHomeGetsNoKeysElsewhere", "TestNoHomeIsMadeInADirectoryOfAnotherUser",
		"TestADirectoryOfRootsStaysClosedWhenKeysArePutBack",
		"TestTheAgentDoesNotUseADirectoryThatOthersCanChange", "TestAStateThatOthersHaveWrittenIsNotRead",
	}
	out, err := n.Exec(t.Context(), program, "-test.v", "-test.run=^("+strings.Join(attacks, "|")+")$")
	t.Log(string(out))
	require.NoError(t, err)
	require.NotContains(t, string(out), "--- SKIP")
	for _, name := range attacks {
		require.Contains(t, string(out), "--- PASS: "+name)
	}
}
