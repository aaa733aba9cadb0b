package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/capi-refit/refit/internal/admin"
	"github.com/capi-refit/refit/internal/printer"
)

// showDriftFlags are those of refit drift.
type showDriftFlags struct {
	managementFlags
	now     bool
	output  printer.Output
	timeout time.Duration
	clock   clock.Clock
}

const driftExample = `  # Has the node been changed since it was updated?
  refit drift worker-17

  # Look now, for a program
  refit drift worker-17 --now -o json`

func newDriftCommand() *cobra.Command { return (&showDriftFlags{clock: clock.RealClock{}}).command() }

func (f *showDriftFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drift MACHINE|NODE",
		Short: "Show what was changed on a node since it was updated",
		Long: `Shows what refit found when it compared the node of a Machine with what it had applied there: files by content, mode and owner,
and units, users, time synchronization and the rest by their state. With --now the node is compared first. The exit status says nothing
of the node: it is 0 when what was found could be shown.`,
		Example: driftExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.output.Check(); err != nil {
				return err
			}
			if f.timeout <= 0 {
				return errors.New("--timeout must be longer than 0")
			}
			r, err := f.find(cmd, args[0])
			if err != nil {
				return err
			}
			d := &admin.Drift{
				Client: r.client, Clock: f.clock, Out: cmd.OutOrStdout(), Progress: cmd.ErrOrStderr(), Admin: r.who, Format: f.output.Format,
			}
			if f.now {
				return d.Now(cmd.Context(), r.machine, f.timeout)
			}
			return d.Show(cmd.Context(), r.machine)
		},
	}
	fs := cmd.Flags()
	f.addScope(cmd)
	f.addAdmin(fs)
	fs.BoolVar(&f.now, "now", false, "Have the node compared, and wait for that.")
	fs.DurationVar(&f.timeout, "timeout", 3*time.Minute, "How long to wait with --now.")
	f.output.Add(cmd, printer.Text, printer.JSON, printer.YAML)
	return cmd
}
