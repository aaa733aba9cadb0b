// Package cli is the command line: the server, and the commands for people.
package cli

import (
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-refit/refit/internal/server"
	"github.com/capi-refit/refit/updaters"
)

// version is that of the program, as Main was told.
var version = "dev"

// Main runs the command that the arguments of the program name, and exits with 1 if it fails. Others' updaters judge after refit's own.
func Main(programVersion string, others ...updaters.Constructor) {
	version = programVersion
	root := newRootCommand(others...)
	if err := root.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		root.PrintErrln("refit:", printable(err.Error()))
		os.Exit(1)
	}
}

// printable leaves control characters out of a text, which may come from objects, but for those that separate lines and columns.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s)
}

func newRootCommand(others ...updaters.Constructor) *cobra.Command {
	root := &cobra.Command{
		Use:           "refit",
		Short:         "Update Cluster API machines in place",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(server.NewCommand(version, others...), newExplainCommand(others...), newScheduleCommand(), newStatusCommand(),
		newHoldCommand(), newReleaseCommand(), newRetryCommand(), newRollbackCommand(), newAbandonCommand(), newDriftCommand(), newAuditCommand(), newRestoreEtcdCommand(), newAgentCommand())
	takeOnce(root)
	return root
}
