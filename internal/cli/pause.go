package cli

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/admin"
)

const pauseExample = `  # Start nothing more in a cluster
  refit pause -n fleet --cluster prod --reason "incident 42"

  # Nor on one machine, for two hours
  refit pause -n fleet prod-x7k2p --reason "a long job" --until 2h`

func newPauseCommand() *cobra.Command { return pauseCommand(&managementFlags{}) }

func pauseCommand(f *managementFlags) *cobra.Command {
	var reason, until string
	cmd := &cobra.Command{
		Use:   "pause (MACHINE|NODE... | --cluster CLUSTER) --reason TEXT",
		Short: "Stop changes of a cluster or of machines: nothing starts there",
		Long: `Sets the annotation capi-refit.dev/restrictive-until on the Cluster, or on the Machines that are named. No update starts there then,
whatever policies permit; what has started ends. Only a bypass of the very change passes it. To have a node to yourself, hold it instead.`,
		Example: pauseExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			now := clock.RealClock{}
			end, err := parseUntil(until, now.Now())
			if err != nil {
				return err
			}
			return f.eachPaused(cmd, args, func(ctx context.Context, p *admin.Pauses, obj client.Object) error {
				return p.Pause(ctx, obj, admin.PauseOptions{Reason: reason, Until: end})
			})
		},
	}
	f.addScope(cmd)
	f.addAdmin(cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "Why, for those who find the pause.")
	cmd.Flags().StringVar(&until, "until", "", "When it ends by itself: an instant in RFC 3339, or a duration from now on such as 2h. Unset: when it is resumed.")
	_ = cmd.MarkFlagRequired("reason") // the flag is there
	return cmd
}

func newResumeCommand() *cobra.Command { return resumeCommand(&managementFlags{}) }

func resumeCommand(f *managementFlags) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "resume (MACHINE|NODE... | --cluster CLUSTER)",
		Short: "Resume changes that were paused",
		Long: `Takes the annotation capi-refit.dev/restrictive-until from the Cluster, or from the Machines that are named. What waits starts as the
policies, and stops of other objects, allow.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.eachPaused(cmd, args, func(ctx context.Context, p *admin.Pauses, obj client.Object) error {
				return p.Resume(ctx, obj, force)
			})
		},
	}
	f.addScope(cmd)
	f.addAdmin(cmd.Flags())
	cmd.Flags().BoolVar(&force, "force", false, "Resume what another person has paused.")
	return cmd
}

// eachPaused does something with the Machines that are named, or with the Cluster if none is.
func (f *managementFlags) eachPaused(cmd *cobra.Command, names []string, do func(context.Context, *admin.Pauses, client.Object) error) error {
	if len(names) == 0 && f.cluster == "" {
		return errors.New("name machines, or a cluster with --cluster")
	}
	c, err := f.client()
	if err != nil {
		return err
	}
	who, err := admin.Who(cmd.Context(), c, f.admin, os.Getenv("USER"))
	if err != nil {
		return err
	}
	pauses := &admin.Pauses{Client: c, Clock: clock.RealClock{}, Out: cmd.OutOrStdout(), Admin: who}
	if len(names) == 0 {
		cluster, err := admin.FindCluster(cmd.Context(), c, f.scope())
		if err != nil {
			return err
		}
		return do(cmd.Context(), pauses, cluster)
	}
	var all []client.Object // each name is known before anything is written
	for _, name := range names {
		m, err := admin.FindMachine(cmd.Context(), c, name, f.scope())
		if err != nil {
			return err
		}
		all = append(all, m)
	}
	for _, m := range all {
		if err := do(cmd.Context(), pauses, m); err != nil {
			return err
		}
	}
	return nil
}
