package cli

import (
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/capi-refit/refit/internal/admin"
	"github.com/capi-refit/refit/internal/printer"
)

type statusFlags struct {
	managementFlags
	all, watch bool
	output     printer.Output
	clock      clock.WithTicker
}

const statusExample = `  # How do the updates of the kubeconfig's namespace stand?
  refit status

  # Those of one cluster, until Ctrl-C
  refit status -A --cluster prod --watch

  # All of it, for a program
  refit status -A -o json`

func newStatusCommand() *cobra.Command { return (&statusFlags{clock: clock.RealClock{}}).command() }

func (f *statusFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [MACHINE|NODE...]",
		Short: "Show how updates stand: what has failed first, then what waits, and for what",
		Long: `Shows a line for each MachineUpdate. With --watch it is drawn again as updates go on, and where the output is no terminal, a
line is written for each change. The exit status says nothing of the updates: it is 0 when they could be shown.`,
		Example: statusExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.output.Check(); err != nil {
				return err
			}
			if f.watch && f.output.Format != printer.Table {
				return errors.New("--watch shows a table: for programs, kubectl get machineupdates --watch -o json")
			}
			s, err := f.status(cmd, args)
			if err != nil {
				return err
			}
			if f.watch {
				return s.Watch(cmd.Context())
			}
			return s.Show(cmd.Context())
		},
	}
	fs := cmd.Flags()
	f.addScope(cmd)
	fs.Lookup("namespace").Usage = "Namespace of the Machines. Unset: that of the kubeconfig."
	fs.BoolVarP(&f.all, "all-namespaces", "A", false, "Show the updates of all namespaces.")
	fs.BoolVarP(&f.watch, "watch", "w", false, "Go on showing them, until Ctrl-C.")
	f.output.Add(cmd, printer.Table, printer.Wide+" (in lines as long as they get)", printer.JSON, printer.YAML, printer.Name)
	return cmd
}

func (f *statusFlags) status(cmd *cobra.Command, machines []string) (*admin.Status, error) {
	scope, err := f.scopeOrDefault(f.all)
	if err != nil {
		return nil, err
	}
	c, err := f.client()
	if err != nil {
		return nil, err
	}
	out := cmd.OutOrStdout()
	return &admin.Status{
		Client: c, Clock: f.clock, Out: out, Scope: scope, Machines: machines, Format: f.output.Format,
		Size: func() (int, int) { return printer.Size(out) },
	}, nil
}
