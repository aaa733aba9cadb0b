package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/printer"
)

const scheduleCoverageExample = `  # Which machines of all namespaces does no policy select?
  refit schedule coverage -A

  # For a script: exits with 1 if there are some
  refit schedule coverage -n fleet --exit-code -o json`

// coverageFlags are those of schedule coverage.
type coverageFlags struct {
	managementFlags
	all, exitCode bool
	output        printer.Output
}

func newScheduleCoverageCommand() *cobra.Command { return (&coverageFlags{}).command() }

func (f *coverageFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "coverage",
		Short: "Show which machines no policy selects, so that their changes start at any time",
		Long: `Reads the Machines and the policies of the management cluster, and shows for each cluster and role how many machines there are, which
policies select some of them, and how many none selects.`,
		Example: scheduleCoverageExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.covers(cmd.Context())
			if err != nil {
				return err
			}
			if err := c.print(cmd.OutOrStdout(), f.output.Format); err != nil {
				return err
			}
			if f.exitCode && c.unselected() > 0 {
				return &exitStatus{1, nil}
			}
			return nil
		},
	}
	fs := cmd.Flags()
	f.addScope(cmd)
	fs.Lookup("namespace").Usage = "Namespace of the Machines. Unset: that of the kubeconfig."
	fs.BoolVarP(&f.all, "all-namespaces", "A", false, "Show the Machines of all namespaces.")
	fs.BoolVar(&f.exitCode, "exit-code", false, "Exit with 1 if no policy selects some of the Machines.")
	f.output.Add(cmd, printer.Table, printer.Wide+" (with the names of all Machines that none selects)", printer.JSON, printer.YAML)
	return cmd
}

// coverage says which Machines policies select.
type coverage []*covered

// covered are the Machines of a cluster and a role.
type covered struct {
	Namespace string       `json:"namespace"`
	Cluster   string       `json:"cluster"`
	Role      refitv1.Role `json:"role"`
	Machines  int          `json:"machines"`
	// Policies are those that select some of the Machines.
	Policies []string `json:"policies"`
	// Unselected are the names of those that none selects.
	Unselected []string `json:"unselected"`
}

func (f *coverageFlags) covers(ctx context.Context) (coverage, error) {
	if err := f.output.Check(); err != nil {
		return nil, err
	}
	scope, err := f.scopeOrDefault(f.all)
	if err != nil {
		return nil, err
	}
	c, err := f.client()
	if err != nil {
		return nil, err
	}
	live, err := readLive(ctx, c, time.Now())
	if err != nil {
		return nil, err
	}
	var list clusterv1.MachineList
	of := []client.ListOption{client.InNamespace(scope.Namespace)}
	if scope.Cluster != "" {
		of = append(of, client.MatchingLabels{clusterv1.ClusterNameLabel: scope.Cluster})
	}
	if err := c.List(ctx, &list, of...); err != nil {
		return nil, fmt.Errorf("list Machines in %s: %w", scope, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("there are no Machines in %s", scope)
	}
	var all coverage
	for i := range list.Items {
		if err := all.add(ctx, live, &list.Items[i]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b *covered) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Role, b.Role))
	})
	return all, nil
}

// add counts a Machine.
func (c *coverage) add(ctx context.Context, live *livePolicies, m *clusterv1.Machine) error {
	candidate, policies, err := live.selecting(ctx, m)
	switch {
	case apierrors.IsNotFound(err):
		return nil // its Cluster is gone, and so will it be
	case err != nil:
		return err
	}
	i := slices.IndexFunc(*c, func(o *covered) bool {
		return o.Namespace == m.Namespace && o.Cluster == candidate.Cluster && o.Role == candidate.Role
	})
	if i < 0 {
		i = len(*c)
		*c = append(*c, &covered{Namespace: m.Namespace, Cluster: candidate.Cluster, Role: candidate.Role, Policies: []string{}, Unselected: []string{}})
	}
	of := (*c)[i]
	of.Machines++
	for _, p := range policies {
		if !slices.Contains(of.Policies, p.Schedule.Name()) {
			of.Policies = append(of.Policies, p.Schedule.Name())
			slices.Sort(of.Policies)
		}
	}
	if len(policies) == 0 {
		of.Unselected = append(of.Unselected, m.Name)
		slices.Sort(of.Unselected)
	}
	return nil
}

func (c coverage) unselected() int {
	n := 0
	for _, of := range c {
		n += len(of.Unselected)
	}
	return n
}

// listed bounds how many Machines are named for a cluster and a role.
const listed = 20

func (c coverage) print(w io.Writer, output string) error {
	if printed, err := printer.Print(w, output, c); printed {
		return err
	}
	width, most := printer.Width(w), listed
	if output == printer.Wide {
		width, most = 0, math.MaxInt
	}
	rows := printer.Rows{{"NAMESPACE", "CLUSTER", "ROLE", "MACHINES", "UNSELECTED", "POLICIES"}}
	for _, of := range c {
		policies := "none"
		if len(of.Policies) > 0 {
			policies = strings.Join(of.Policies, ", ")
		}
		rows.Add(of.Namespace, of.Cluster, string(of.Role), strconv.Itoa(of.Machines), strconv.Itoa(len(of.Unselected)), policies)
	}
	_, err := io.WriteString(w, rows.Text("", width)+printer.Fold(printable(c.missed(most)), width))
	return err
}

// missed names the Machines that no policy selects, so many for a cluster and a role.
func (c coverage) missed(most int) string {
	if c.unselected() == 0 {
		return "\nEach machine is selected by a policy.\n"
	}
	text := "\nNo policy selects these, so that their changes start at any time:\n"
	for _, of := range c {
		some, more := of.Unselected, ""
		if len(some) > most {
			more = fmt.Sprintf(" and %d more", len(some)-most)
			some = some[:most]
		}
		if len(some) > 0 {
			text += fmt.Sprintf("  %s/%s %s: %s%s\n", of.Namespace, of.Cluster, of.Role, strings.Join(some, ", "), more)
		}
	}
	return text
}
