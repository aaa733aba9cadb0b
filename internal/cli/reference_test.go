package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// TestTheReferenceIsUpToDate: the page says what the commands do.
func TestTheReferenceIsUpToDate(t *testing.T) {
	require.Equal(t, Reference(), readPage(t, filepath.Join(docsDir, "reference", "cli.md")), "the page is not what make reference makes")
}

// TestEachCommandIsInTheReference, with all of its flags, and says what it does.
func TestEachCommandIsInTheReference(t *testing.T) {
	page := Reference()
	commands := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.HasParent() {
			commands++
			require.Contains(t, page, "\n## "+cmd.CommandPath()+"\n")
			require.NotEmpty(t, cmd.Short, cmd.CommandPath())
			require.False(t, strings.HasSuffix(cmd.Short, "."), cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand())
	require.Greater(t, commands, 20)
}
