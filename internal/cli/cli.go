// Package cli is the command line: the server, and the commands for people.
package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-refit/refit/internal/plain"
	"github.com/capi-refit/refit/internal/printer"
	"github.com/capi-refit/refit/internal/server"
	"github.com/capi-refit/refit/updaters"
)

// version is that of the program, as Main was told.
var version = "dev"

// Main runs the command that the arguments of the program name, and exits with 1 if it fails, or with what the command says. Others' updaters judge
// after refit's own.
func Main(programVersion string, others ...updaters.Constructor) {
	version = programVersion
	root := newRootCommand(others...)
	if err := root.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		status := &exitStatus{1, err}
		if errors.As(err, &status); status.err != nil {
			root.PrintErr(printer.Fold("refit: "+printable(err.Error())+"\n", printer.Width(os.Stderr)))
		}
		os.Exit(status.code)
	}
}

// exitStatus is an answer that a script reads out of the exit status. Without an err all that there is to say has been printed.
type exitStatus struct {
	code int
	err  error
}

func (e *exitStatus) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

// subcommands makes a command of others, which does nothing by itself.
func subcommands(cmd *cobra.Command, of ...*cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q for %q; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(of...)
	return cmd
}

// printable leaves control characters out of a text, which may come from objects, but for those that separate lines and columns.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if plain.Unfit(r) && r != '\n' && r != '\t' {
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
	root.AddCommand(server.NewCommand(version, others...), newExplainCommand(others...), newDiffCommand(others...), newScheduleCommand(), newCheckCommand(), newStatusCommand(), newPendingCommand(), newUICommand(), newConformanceCommand(),
		newHoldCommand(), newReleaseCommand(), newPauseCommand(), newResumeCommand(), newRetryCommand(), newPermitCommand(), newRollbackCommand(), newAbandonCommand(), newDriftCommand(), newAuditCommand(), newRestoreEtcdCommand(), newAgentCommand(), newVersionCommand())
	takeOnce(root)
	return root
}
