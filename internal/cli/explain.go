package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/judges"
	"github.com/capi-refit/refit/updaters"
)

const explainExample = `  # What will Cluster API do with this change?
  refit explain -f request.json

  # What with these NodeDisruptionPolicies?
  refit explain -f request.json --policy policies.yaml

  # Is this version of Kubernetes reached in place, with these KubernetesSources?
  refit explain -f request.json --source sources.yaml

  # May this image change, with these BootImagePolicies?
  refit explain -f request.json --boot-image-policy images.yaml

  # The same for a machine, with the response of the hook
  refit explain -f request.json -o json`

func newExplainCommand(others ...updaters.Constructor) *cobra.Command {
	var file, output string
	var files explainFiles
	var flags judges.RuleFlags
	cmd := &cobra.Command{
		Use:   "explain -f REQUEST",
		Short: "Say, field by field, whether a change is made in place, and why not",
		Long: `Takes a CanUpdateMachineRequest or a CanUpdateMachineSetRequest, as Cluster API sends them, and says for each changed
field which updater makes it in place, its disruption class and what that takes on the node, or why it can't be made in
place; and the verdict that Cluster API will reach: InPlace, or Replace. It is the server's own engine, and needs no cluster.
Policies and sources that API servers refuse are an error.

NodeDisruptionPolicies, KubernetesSources when the version changes, and BootImagePolicies when the image does, count as far as the
request tells that they select the machine. It has no labels of the Cluster: a policy or source that selects Clusters is taken to
select this one, which is said.`,
		Example: explainExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("--output is %q and can be json, or left out", output)
			}
			rules, err := flags.Rules()
			if err != nil {
				return err
			}
			if err := checkFiles(slices.Concat([]string{file}, files.policies, files.sources, files.images)...); err != nil {
				return err
			}
			policies, err := readDisruptions(cmd.InOrStdin(), files, rules, others...)
			if err != nil {
				return err
			}
			request, err := readFile(cmd.InOrStdin(), file)
			if err != nil {
				return err
			}
			x, err := handlers.NewEngine(policies).Explain(cmd.Context(), request)
			if err != nil {
				return err
			}
			out := &explanation{Explanation: x, Policies: policies.applied, Source: policies.source, Probes: policies.probes, Notes: policies.notes}
			if slices.ContainsFunc(x.Fields, func(f handlers.FieldExplanation) bool { return f.Object == fieldset.InfrastructureMachine }) {
				out.BootImagePolicies, out.Notes = policies.bootImages, append(out.Notes, policies.imageNotes...)
			}
			return printExplanation(cmd.OutOrStdout(), out, output)
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "File with the request, in JSON or YAML; - for standard input.")
	cmd.Flags().StringArrayVar(&files.policies, "policy", nil, "File with NodeDisruptionPolicies, in JSON or YAML; - for standard input. Can be there more than once.")
	cmd.Flags().StringArrayVar(&files.sources, "source", nil, "File with KubernetesSources, in JSON or YAML; - for standard input. Can be there more than once.")
	cmd.Flags().StringArrayVar(&files.images, "boot-image-policy", nil, "File with BootImagePolicies, in JSON or YAML; - for standard input. Can be there more than once.")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, for programs.")
	flags.Add(cmd.Flags())
	_ = cmd.MarkFlagRequired("filename") // the flag is there
	return cmd
}

// explanation is what the engine says, and by which policies.
type explanation struct {
	*handlers.Explanation

	// Policies are the names of the NodeDisruptionPolicies that count.
	Policies []string `json:"policies"`
	// Probes are what the NodeDisruptionPolicies that count ask the node before and after an update that takes an action.
	Probes []string `json:"probes,omitempty"`
	// BootImagePolicies are the names of those that count.
	BootImagePolicies []string `json:"bootImagePolicies,omitempty"`
	// Source is the name of the KubernetesSource that was asked for a version.
	Source string `json:"source,omitempty"`
	// Notes say what the request does not tell about policies and sources, or why one does not count.
	Notes []string `json:"notes"`
}

// labelled returns a line for each text.
func labelled(label string, texts []string) (all string) {
	for _, text := range texts {
		all += label + text + "\n"
	}
	return all
}

func printExplanation(w io.Writer, x *explanation, output string) error {
	if output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(x)
	}
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "OBJECT\tFIELD\tUPDATER\tDISRUPTION\tON THE NODE") //nolint:errcheck // Flush returns the error
	for _, f := range x.Fields {
		what := strings.Join(f.Actions, ", ")
		updater := f.Updater
		switch {
		case !f.Covered:
			updater, what = "-", "can't be updated in place: "+f.Reason
		case f.Reason != "":
			what += ": " + f.Reason
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", f.Object, f.Path, updater, f.Disruption, what) //nolint:errcheck // Flush returns the error
	}
	if err := t.Flush(); err != nil {
		return err
	}
	text := table.String() + fmt.Sprintf("\nVerdict: %s\n", x.Verdict)
	if len(x.Actions) > 0 {
		text += fmt.Sprintf("On the node: %s\nDisruption: %s\n", strings.Join(x.Actions, ", "), x.Disruption)
	}
	if len(x.Policies) > 0 {
		text += fmt.Sprintf("By the policies: %s\n", strings.Join(x.Policies, ", "))
	}
	text += labelled("Asked of the node before and after: ", x.Probes)
	if len(x.BootImagePolicies) > 0 {
		text += fmt.Sprintf("By the BootImagePolicies: %s\n", strings.Join(x.BootImagePolicies, ", "))
	}
	if x.Source != "" {
		text += fmt.Sprintf("By the source: %s\n", x.Source)
	}
	text += labelled("Note: ", x.Notes)
	_, err := io.WriteString(w, printable(text))
	return err
}
