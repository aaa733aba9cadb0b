package handlers

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatDecidesKnowsNoHooks: but for the server, the command line, and what explains as the hooks would answer, nothing imports this package. What they
// share is in internal/inplace.
func TestWhatDecidesKnowsNoHooks(t *testing.T) {
	const module = "github.com/capi-refit/refit/"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"internal/...", module+"updaters/...").Output()
	require.NoError(t, err)
	var importers []string
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if slices.Contains(words[1:], module+"handlers") {
			importers = append(importers, strings.TrimPrefix(words[0], module))
		}
	}
	require.Equal(t, []string{"internal/cli", "internal/explain", "internal/guard", "internal/server"}, importers)
}
