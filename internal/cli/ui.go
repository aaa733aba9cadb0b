package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/capi-refit/refit/internal/ui"
)

type uiFlags struct {
	managementFlags
	address string
	clock   clock.PassiveClock
}

const uiExample = `  # Serve the page, and print its URL
  refit ui

  # One namespace, on a port of your choice
  refit ui -n fleet --address 127.0.0.1:8080`

func newUICommand() *cobra.Command { return (&uiFlags{clock: clock.RealClock{}}).command() }

func (f *uiFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a page that shows the fleet, what waits, and when changes may start",
		Long: `Serves a page on this machine, and prints its URL: the fleet cluster by cluster, why updates wait and when they may start, windows
and freezes of the next four weeks, each update with its steps, and policies with whom they select. It follows changes by itself.

The page sees what you may list and watch in the management cluster, and says what you may not. It writes nothing. It is served on 127.0.0.1
only, and to whoever has the token in the URL. Ctrl-C ends it.`,
		Example: uiExample,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.serve(cmd.Context(), cmd) },
	}
	fs := cmd.Flags()
	f.addConnection(fs)
	fs.StringVarP(&f.namespace, "namespace", "n", "", "Namespace that is shown. Unset: all are.")
	fs.StringVar(&f.address, "address", "127.0.0.1:0", "Where the page is served: a port of 127.0.0.1. 0 is one that is free.")
	f.completes(cmd)
	return cmd
}

func (f *uiFlags) serve(ctx context.Context, cmd *cobra.Command) error {
	c, err := f.client()
	if err != nil {
		return err
	}
	fleet, err := ui.NewFleet(ui.Options{Client: c, Namespace: f.namespace, Clock: f.clock})
	if err != nil {
		return err
	}
	l, err := ui.Listen(ctx, f.address)
	if err != nil {
		return fmt.Errorf("serve the page: %w", err)
	}
	door := ui.NewDoor(l.Addr())
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "The page, for who has this URL: %s\nCtrl-C ends it.\n", door.URL()); err != nil {
		_ = l.Close() // nobody would know of it
		return err
	}
	return ui.Serve(ctx, l, fleet, door)
}
