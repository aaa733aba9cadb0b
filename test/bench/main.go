// bench measures refit side by side with what a user would take instead, in one run, taking turns: the hooks against
// Cluster API's reference extension, updates of nodes against OpenSSH one after another, and windows against rrule-go and
// robfig/cron. It prints ratios, because
// seconds say more about the machine than about the programs.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
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
	cmd.Flags().BoolVar(&o.skipHooks, "skip-hooks", false, "Leave the hooks out.")
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // there is nothing left for the deferred stop to do
	}
}

func (o options) run(ctx context.Context, out io.Writer) error {
	if err := benchSchedule(ctx, out); err != nil {
		return err
	}
	if err := benchEngine(out); err != nil {
		return err
	}
	if err := benchNodes(ctx, out, o.nodes); err != nil {
		return err
	}
	if o.skipHooks {
		return nil
	}
	return benchHooks(ctx, out, o)
}

func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
