package cli

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/admin"
)

func newRetryCommand() *cobra.Command {
	return failureCommand(&managementFlags{}, &cobra.Command{
		Use:   "retry MACHINE|NODE",
		Short: "Have an update that has failed tried again",
		Long: `Has the failed update of a Machine tried again. Put right what made it fail before: its message says what that was. What the
node shows already is not changed again.`,
	}, (*admin.Failures).Retry)
}

func newAbandonCommand() *cobra.Command {
	return failureCommand(&managementFlags{}, &cobra.Command{
		Use:   "abandon MACHINE|NODE",
		Short: "Give an update that has failed up, so that its slot is free",
		Long: `Acknowledges that the update of a Machine has failed, or that it had: one that waits to be tried again can be given up, too. It keeps its part of the budget until then, so that failures do not walk
through a fleet. What refit has put on the node is taken away, its cordon included; the files there stay as they are.`,
	}, (*admin.Failures).Abandon)
}

// failureCommand makes a command out of what is decided about an update that has failed.
func failureCommand(f *managementFlags, cmd *cobra.Command, decide func(*admin.Failures, context.Context, *clusterv1.Machine) error) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := f.find(cmd, args[0])
		if err != nil {
			return err
		}
		failures := &admin.Failures{Client: r.client, Clock: clock.RealClock{}, Out: cmd.OutOrStdout(), Admin: r.who}
		return decide(failures, cmd.Context(), r.machine)
	}
	f.addScope(cmd)
	f.addAdmin(cmd.Flags())
	return cmd
}
