package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/admin"
	"github.com/capi-refit/refit/internal/check"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodeaccess"
	"github.com/capi-refit/refit/internal/printer"
)

const checkExamples = `  # Is all there that updates in place take?
  refit check

  # Of one cluster, for programs
  refit check -n fleet --cluster prod -o json

  # Does refit's login work on five nodes of each cluster?
  refit check --nodes 5 --problems`

// checkFlags are those of check.
type checkFlags struct {
	managementFlags
	output             printer.Output
	workload, problems bool
	nodes              int
	dialer             remote.Dialer
	clock              clock.PassiveClock
}

func newCheckCommand() *cobra.Command {
	return (&checkFlags{clock: clock.RealClock{}, dialer: remote.SSHDialer{}}).command()
}

func (f *checkFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look for what keeps machines from being updated in place",
		Long: `Looks at the management cluster, and changes nothing: refit's kinds, Cluster API's feature gates, the ExtensionConfig with its
Service and certificate, whether API servers ask about policies and, with the guard, about edits, refit's replicas and their leader, and for each Cluster whether refit is asked about it, whether each machine has a NodeAccess, how its
control plane and MachineDeployments roll out, MachineHealthChecks that are too quick, policies that never open, and whether the API server of
the workload cluster allows what refit does there. With --nodes it logs in to nodes as refit does, and looks whether it may run there what it takes:
by sudo where that is set, in an agent's directory in which nobody else can exchange anything.

It exits with 0 if all is well, 1 if there are warnings, 2 if there are errors, and 3 if it could not look: a flag or value that is wrong, say, or no
kubeconfig.`,
		Example: checkExamples,
		Args:    func(cmd *cobra.Command, args []string) error { return notLooked(cobra.NoArgs(cmd, args)) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return notLooked(err) })
	fs := cmd.Flags()
	f.addScope(cmd)
	fs.Lookup("namespace").Usage = "Namespace of the Clusters. Unset: all."
	fs.Lookup("cluster").Usage = "Name of a Cluster. Unset: all."
	fs.BoolVar(&f.workload, "workload", true, "Ask the API servers of workload clusters, too, by the kubeconfigs that refit has. It takes the right to read these Secrets.")
	fs.IntVar(&f.nodes, "nodes", 0, "Log in to so many nodes of each Cluster, those of the control plane first; -1: to all. It takes the right to read the Secrets of NodeAccesses, and a way to the nodes from here.")
	fs.BoolVar(&f.problems, "problems", false, "Show only what is not as it should be.")
	f.output.Add(cmd, printer.Text, printer.JSON, printer.YAML)
	return cmd
}

// notLooked is that nothing was looked at, which is neither a warning nor an error of the installation.
func notLooked(err error) error {
	if err == nil {
		return nil
	}
	return &exitStatus{3, err}
}

func (f *checkFlags) run(cmd *cobra.Command) error {
	if err := f.output.Check(); err != nil {
		return notLooked(err)
	}
	now := &serverClock{own: f.clock}
	f.observe = now.follow
	c, err := f.client()
	if err != nil {
		return notLooked(err)
	}
	checker := &check.Checker{Client: c, Clock: now, Namespace: f.namespace, Cluster: f.cluster}
	if f.workload {
		checker.Workload = func(ctx context.Context, cluster types.NamespacedName) (*rest.Config, error) {
			return admin.WorkloadConfig(ctx, c, cluster)
		}
	}
	checker.Nodes = f.nodes
	checker.Reach = func(ctx context.Context, machine *clusterv1.Machine) error {
		return nodeaccess.Reach(ctx, c, f.dialer, machine)
	}
	all := checker.Run(cmd.Context())
	if err := f.print(cmd.OutOrStdout(), all); err != nil {
		return notLooked(err)
	}
	switch check.Worst(all) {
	case check.Error:
		return &exitStatus{2, nil}
	case check.Warning:
		return &exitStatus{1, nil}
	default:
		return nil
	}
}

func (f *checkFlags) print(w io.Writer, all []check.Finding) error {
	shown := []check.Finding{}
	count := map[check.Level]int{}
	for _, one := range all {
		count[one.Level]++
		if !f.problems || one.Level != check.Good {
			shown = append(shown, one)
		}
	}
	if printed, err := printer.Print(w, f.output.Format, shown); printed {
		return err
	}
	var text strings.Builder
	width := printer.Width(w)
	for _, one := range shown {
		about := one.Check
		if one.Object != "" {
			about += ", " + one.Object
		}
		text.WriteString(printer.Labelled(fmt.Sprintf("%-8s", strings.ToUpper(string(one.Level))), printable(about+": "+one.Message), width))
		if one.Do != "" {
			text.WriteString(printer.Labelled("        → ", printable(one.Do), width))
		}
	}
	fmt.Fprintf(&text, "\n%d errors, %d warnings, %d OK\n", count[check.Error], count[check.Warning], count[check.Good])
	_, err := io.WriteString(w, text.String())
	return err
}
