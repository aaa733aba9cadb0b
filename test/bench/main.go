// bench measures refit side by side with what a user would take instead, in one run, taking turns: the hooks against
// Cluster API's reference extension, updates of nodes against Ansible and OpenSSH, plans against Ansible's check mode, and
// windows against rrule-go and robfig/cron. It prints ratios, because seconds say more about the machine than about the
// programs. What is not installed is skipped, and said to be. Two things have a bound, and fail the run: how long a large
// difference takes, and how much later a right client is answered beside an abusive one.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
)

type options struct {
	rounds      int
	duration    time.Duration
	connections int
	nodes       int
	hosts       int
	sshRounds   int
	agents      string
	only        []string
	skipHooks   bool
}

func main() {
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	cmd := &cobra.Command{
		Use:           "bench",
		Short:         "Compare refit with what a user would take instead",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	cmd.Flags().IntVar(&o.rounds, "rounds", 7, "Rounds; in each, both servers have their turn with each hook.")
	cmd.Flags().DurationVar(&o.duration, "duration", 2*time.Second, "Length of a turn.")
	cmd.Flags().IntVar(&o.connections, "connections", 16, "Connections that ask at once.")
	cmd.Flags().IntVar(&o.nodes, "nodes", 100, "Nodes to update.")
	cmd.Flags().IntVar(&o.hosts, "hosts", 50, "OpenSSH servers to update the nodes behind.")
	cmd.Flags().IntVar(&o.sshRounds, "ssh-rounds", 3, "Rounds; in each, refit, OpenSSH and Ansible have their turn with all of them.")
	cmd.Flags().StringVar(&o.agents, "agents", "bin/agents", "Directory of the agents, as make build makes them.")
	cmd.Flags().StringSliceVar(&o.only, "only", nil, "Measure only these: schedule, engine, diff, abuse, nodes, plan, sshd, hooks.")
	cmd.Flags().BoolVar(&o.skipHooks, "skip-hooks", false, "Leave the hooks out.")
	addHidden(cmd)
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // there is nothing left for the deferred stop to do
	}
}

func (o options) run(ctx context.Context, out io.Writer) error {
	for _, part := range []struct {
		name string
		do   func() error
	}{
		{"schedule", func() error { return benchSchedule(ctx, out) }},
		{"engine", func() error { return benchEngine(out) }},
		{"diff", func() error { return benchDiff(ctx, out) }},
		{"abuse", func() error { return benchAbuse(ctx, out, o) }},
		{"nodes", func() error { return benchNodes(ctx, out, o) }},
		{"plan", func() error { return benchPlan(ctx, out, o) }},
		{"sshd", func() error { return benchSSHD(ctx, out, o) }},
		{"hooks", func() error { return benchHooks(ctx, out, o) }},
	} {
		if len(o.only) > 0 && !slices.Contains(o.only, part.name) || part.name == "hooks" && o.skipHooks {
			continue
		}
		if err := part.do(); err != nil {
			return err
		}
	}
	return nil
}

func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
