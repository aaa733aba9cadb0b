package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/capi-refit/refit/internal/admin"
)

const permitExample = `  # Let the change of one machine start
  refit permit -n fleet prod-x7k2p

  # All that wait in a cluster now, if they start within two hours
  refit permit -n fleet --cluster prod --all --until 2h`

func newPermitCommand() *cobra.Command { return permitCommand(&managementFlags{}) }

func permitCommand(f *managementFlags) *cobra.Command {
	var until string
	var all bool
	cmd := &cobra.Command{
		Use:   "permit (MACHINE|NODE... | --all)",
		Short: "Permit changes where a policy is Manual",
		Long: `Permits the change that an update waits for, where policies have the strategy Manual. They start in the order in which they are
permitted, each as windows, budgets and stops of other policies allow. A permission is for one change: other specs take another one.`,
		Example: permitExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return errors.New("name machines, or say --all")
			}
			if all && f.cluster == "" {
				return errors.New("--all permits all that waits in a cluster: say which with --cluster")
			}
			now := clock.RealClock{}
			end, err := parseUntil(until, now.Now())
			if err != nil {
				return err
			}
			c, err := f.client()
			if err != nil {
				return err
			}
			who, err := admin.Who(cmd.Context(), c, f.admin, os.Getenv("USER"))
			if err != nil {
				return err
			}
			permits := &admin.Permits{Client: c, Clock: now, Out: cmd.OutOrStdout(), Admin: who, Until: end}
			if all {
				return permits.All(cmd.Context(), f.scope())
			}
			for _, name := range args {
				m, err := admin.FindMachine(cmd.Context(), c, name, f.scope())
				if err != nil {
					return err
				}
				if err := permits.Machine(cmd.Context(), m); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			return nil
		},
	}
	f.addScope(cmd)
	f.addAdmin(cmd.Flags())
	cmd.Flags().BoolVar(&all, "all", false, "Permit all changes of the cluster that wait now.")
	cmd.Flags().StringVar(&until, "until", "", "How long it is permitted, if it has not started by then: a duration such as 2h, or an instant in RFC 3339.")
	return cmd
}
