package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/capi-refit/refit/internal/admin"
)

func newRollbackCommand() *cobra.Command {
	f := &managementFlags{}
	timeout, noWait := time.Duration(0), false
	cmd := &cobra.Command{
		Use:   "rollback MACHINE|NODE",
		Short: "Have a Machine that is being updated become what its owner wants now",
		Long: `Cluster API asks nothing new of a Machine while it is being updated in place: a change that can't be made is not taken back by
putting the template back. This command has refit write what the owner of the Machine wants now (the template that its
MachineDeployment or KubeadmControlPlane points to) into the Machine, its bootstrap config and its infrastructure machine. So put
that right first. The update then begins again with it, and waits for window, slot and lease as any other.

The command succeeds when that is written, and fails when refit refuses: nothing differs, say, or not all of it can be brought to
the node in place.`,
		Example: `  # The template is as it was before the change
  refit rollback -n fleet prod-x7k2p`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return errors.New("--timeout must be longer than no time; --no-wait does not wait")
			}
			r, err := f.find(cmd, args[0])
			if err != nil {
				return err
			}
			ask := &admin.Rollback{Client: r.client, Clock: clock.RealClock{}, Out: cmd.OutOrStdout(), Admin: r.who, Timeout: timeout}
			if noWait {
				ask.Timeout = 0
			}
			return ask.Ask(cmd.Context(), r.machine)
		},
	}
	f.addScope(cmd)
	f.addAdmin(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "How long to wait until it is written.")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "Don't wait until it is written.")
	return cmd
}
