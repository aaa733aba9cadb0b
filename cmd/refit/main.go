// refit updates Cluster API machines in place.
package main

import (
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
)

// version is stamped by the build.
var version = "dev"

func main() {
	root := &cobra.Command{
		Use:           "refit",
		Short:         "Update Cluster API machines in place",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newServeCommand(), newExplainCommand(), newScheduleCommand(), newStatusCommand(),
		newHoldCommand(), newReleaseCommand(), newRetryCommand(), newAbandonCommand(), newDriftCommand(), newAuditCommand(), newRestoreEtcdCommand(), newAgentCommand())
	if err := root.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		root.PrintErrln("refit:", err)
		os.Exit(1)
	}
}
