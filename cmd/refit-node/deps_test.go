package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheAgentLinksNothingOfTheServers: what runs on nodes as root is small, and has none of how the server reaches them.
func TestTheAgentLinksNothingOfTheServers(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	packages := strings.Fields(string(out))
	require.Contains(t, packages, "github.com/capi-refit/refit/internal/node", "the list is one of packages")
	// They compare versions, and import nothing but Go's standard library.
	allowed := []string{"k8s.io/apimachinery/pkg/util/version", "k8s.io/apimachinery/pkg/version"}
	for _, p := range packages {
		if slices.Contains(allowed, p) {
			continue
		}
		for _, foreign := range []string{"golang.org/x/crypto", "github.com/capi-refit/refit/internal/node/", "k8s.io/client-go", "k8s.io/apimachinery", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/cluster-api"} {
			require.False(t, strings.HasPrefix(p, foreign), "the agent links %s", p)
		}
	}
}
