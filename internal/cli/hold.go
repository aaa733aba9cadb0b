package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/admin"
	"github.com/capi-refit/refit/internal/lease"
)

// holdFlags are those of hold and release.
type holdFlags struct {
	managementFlags
	reason, until    string
	workload, leases string
	timeout          time.Duration
	noWait, force    bool
	clock            clock.Clock
	nodes            func(context.Context, types.NamespacedName) (admin.Nodes, error)
}

func (f *holdFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.addScope(cmd)
	f.addAdmin(fs)
	fs.StringVar(&f.workload, "workload-kubeconfig", "", "Kubeconfig of the workload cluster. Unset: the Secret <cluster>-refit-kubeconfig, else <cluster>-kubeconfig, beside the Cluster.")
	fs.StringVar(&f.leases, "lease-namespace", lease.DefaultNamespace, "Namespace of the node leases in the workload cluster.")
}

const holdExample = `  # Have a machine to yourself until it is released
  refit hold prod-x7k2p --reason "disk swap"

  # By the name of its node, for two hours at most
  refit hold worker-17 --reason "disk swap" --until 2h`

func newHoldCommand() *cobra.Command { return (&holdFlags{clock: clock.RealClock{}}).holdCommand() }

func (f *holdFlags) holdCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hold MACHINE|NODE --reason TEXT",
		Short: "Have a node to yourself: refit releases it, and others stay off",
		Long: `Sets the annotation capi-refit.dev/hold on the Machine, so that refit begins nothing on its node and releases it after the step that
is under way, with what keeps Cluster API from remediating it, and its deletion waiting; then takes the node's lease, which medik8s'
operators honour as well, and marks the Node for remediators and autoscalers. While refit holds the lease, the command waits for it.

The command succeeds when the node is yours. It fails when the lease is somebody else's; refit and Cluster API stay off the node by
the annotations even so. With --no-wait it succeeds as soon as the annotation is there, if only refit is to release it.`,
		Example: holdExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			end, err := parseUntil(f.until, f.clock.Now())
			if err != nil {
				return err
			}
			if f.timeout <= 0 {
				return errors.New("--timeout must be longer than no time; --no-wait does not wait")
			}
			h, r, err := f.holder(cmd, args[0])
			if err != nil {
				return err
			}
			o := admin.HoldOptions{Reason: f.reason, Until: end, Timeout: f.timeout}
			if f.noWait {
				o.Timeout = 0
			}
			return h.Hold(cmd.Context(), r.machine, o)
		},
	}
	fs := cmd.Flags()
	f.add(cmd)
	fs.StringVar(&f.reason, "reason", "", "Why, for those who find the hold.")
	fs.StringVar(&f.until, "until", "", "When the hold ends by itself: an instant in RFC 3339, or a duration from now on such as 2h. Unset: when it is released.")
	fs.DurationVar(&f.timeout, "timeout", 15*time.Minute, "How long to wait for refit to release the node.")
	fs.BoolVar(&f.noWait, "no-wait", false, "Don't wait for refit to release the node.")
	_ = cmd.MarkFlagRequired("reason") // the flag is there
	return cmd
}

func newReleaseCommand() *cobra.Command {
	return (&holdFlags{clock: clock.RealClock{}}).releaseCommand()
}

func (f *holdFlags) releaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release MACHINE|NODE",
		Short: "Release a node that was held with refit hold",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, r, err := f.holder(cmd, args[0])
			if err != nil {
				return err
			}
			return h.Release(cmd.Context(), r.machine, f.force)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.force, "force", false, "Release another person's hold. What is not a person's is never released.")
	return cmd
}

func (f *holdFlags) holder(cmd *cobra.Command, name string) (*admin.Holder, *request, error) {
	r, err := f.find(cmd, name)
	if err != nil {
		return nil, nil, err
	}
	nodes := f.nodes
	if nodes == nil {
		nodes = workloadNodes(client.Reader(r.client), f.workload, f.leases)
	}
	return &admin.Holder{Client: r.client, Nodes: nodes, Clock: f.clock, Out: cmd.OutOrStdout(), Admin: r.who}, r, nil
}

// parseUntil reads an instant, or how far away it is.
func parseUntil(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second {
		return time.Time{}, fmt.Errorf("--until is %q, which is neither an instant in RFC 3339, such as 2026-10-03T20:00:00Z, nor a duration, such as 2h", s)
	}
	return now.Add(d).Truncate(time.Second), nil
}
