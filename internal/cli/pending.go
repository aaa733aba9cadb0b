package cli

import (
	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/internal/admin"
	"github.com/capi-refit/refit/internal/printer"
)

type pendingFlags struct {
	managementFlags
	all    bool
	output printer.Output
}

const pendingExample = `  # What waits in the kubeconfig's namespace, from when on may it start, and when would the last be done?
  refit pending

  # Which Machines of a cluster will be touched
  refit pending -n fleet --cluster prod -o wide

  # All of it, for a program
  refit pending -A -o json`

func newPendingCommand() *cobra.Command { return (&pendingFlags{}).command() }

func (f *pendingFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pending",
		Short: "Show which Machines a change will touch, from when on, and when the last would be done",
		Long: `Shows a line for each MachineDeployment, control plane and Cluster at which a change waits that was asked for: an update in place,
a replacement, or an upgrade that a hook holds back. EARLIEST is when all policies let the first Machine start together, LAST DONE an
estimate of when the last would be done. A dash is what nobody knows. These are the PendingChange objects, which refit keeps; they may
be 30 seconds old. The exit status is 0 when they could be shown, also if nothing waits.`,
		Example: pendingExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.output.Check(); err != nil {
				return err
			}
			scope, err := f.scopeOrDefault(f.all)
			if err != nil {
				return err
			}
			c, err := f.client()
			if err != nil {
				return err
			}
			return (&admin.Pending{Client: c, Out: cmd.OutOrStdout(), Scope: scope, Format: f.output.Format}).Show(cmd.Context())
		},
	}
	fs := cmd.Flags()
	f.addScope(cmd)
	fs.Lookup("namespace").Usage = "Namespace of the Machines. Unset: that of the kubeconfig."
	fs.BoolVarP(&f.all, "all-namespaces", "A", false, "Show what waits in all namespaces.")
	f.output.Add(cmd, printer.Table, printer.Wide+" (with the Machines, in lines as long as they get)", printer.JSON, printer.YAML, printer.Name)
	return cmd
}
