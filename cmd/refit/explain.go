package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/handlers"
)

const explainExample = `  # What will Cluster API do with this change?
  refit explain -f request.json

  # The same for a machine, with the response of the hook
  refit explain -f request.json -o json`

func newExplainCommand() *cobra.Command {
	var file, output string
	var flags ruleFlags
	cmd := &cobra.Command{
		Use:   "explain -f REQUEST",
		Short: "Say, field by field, whether a change is made in place, and why not",
		Long: `Takes a CanUpdateMachineRequest or a CanUpdateMachineSetRequest, as Cluster API sends them, and says for each changed
field which updater makes it in place and what that takes on the node, or why it can't be made in place; and the verdict
that Cluster API will reach: InPlace, or Replace. It is the server's own engine, and needs no cluster.`,
		Example: explainExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("--output is %q and can be json, or left out", output)
			}
			rules, err := flags.rules()
			if err != nil {
				return err
			}
			reg, err := registry(rules)
			if err != nil {
				return err
			}
			request, err := readFile(cmd.InOrStdin(), file)
			if err != nil {
				return err
			}
			x, err := handlers.NewEngine(reg).Explain(cmd.Context(), request)
			if err != nil {
				return err
			}
			return printExplanation(cmd.OutOrStdout(), x, output)
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "File with the request, in JSON or YAML; - for standard input.")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, for programs.")
	flags.add(cmd.Flags())
	_ = cmd.MarkFlagRequired("filename") // the flag is there
	return cmd
}

func readFile(stdin io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}

func printExplanation(w io.Writer, x *handlers.Explanation, output string) error {
	if output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(x)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "OBJECT\tFIELD\tUPDATER\tON THE NODE") //nolint:errcheck // Flush returns the error
	for _, f := range x.Fields {
		what := strings.Join(f.Actions, ", ")
		updater := f.Updater
		if !f.Covered {
			updater, what = "-", "can't be updated in place: "+f.Reason
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Object, f.Path, updater, what) //nolint:errcheck // Flush returns the error
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nVerdict: %s\n", x.Verdict)
	return err
}
