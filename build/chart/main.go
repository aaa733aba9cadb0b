// Chart makes the Helm chart's templates out of the manifests of config/, so that both install the same. What a chart has beside templates, its values
// among it, is written by hand in charts/refit.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	var config, out string
	cmd := &cobra.Command{
		Use:           "chart",
		Short:         "Make the templates of refit's Helm chart",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(*cobra.Command, []string) error {
			files, err := templates(config)
			if err != nil {
				return err
			}
			return write(out, files)
		},
	}
	cmd.Flags().StringVar(&config, "config", "config", "Directory with the manifests.")
	cmd.Flags().StringVar(&out, "out", "charts/refit/templates", "Directory for the templates. Those that are made no more are removed.")
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}
