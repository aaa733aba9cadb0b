package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/test/lab"
)

func buildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the lab's programs, so that later starts take seconds",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			binaries, err := lab.Build(command.Context(), command.ErrOrStderr())
			if err != nil {
				return err
			}
			for _, program := range lab.Programs() {
				_, _ = fmt.Fprintf(command.OutOrStdout(), "%-29s %s\n", program, binaries[program])
			}
			return nil
		},
	}
}
