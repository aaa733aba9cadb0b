package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/test/lab"
)

func buildCommand() *cobra.Command {
	var except []string
	c := &cobra.Command{
		Use:   "build",
		Short: "Build the lab's programs, so that later starts take seconds",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			programs := lab.Programs()
			for _, name := range except {
				i := slices.Index(programs, lab.Program(name))
				if i < 0 {
					return fmt.Errorf("--except: a lab has no program %q", name)
				}
				programs = slices.Delete(programs, i, i+1)
			}
			binaries, err := lab.Build(command.Context(), command.ErrOrStderr(), programs...)
			if err != nil {
				return err
			}
			for _, program := range programs {
				_, _ = fmt.Fprintf(command.OutOrStdout(), "%-29s %s\n", program, binaries[program])
			}
			return nil
		},
	}
	c.Flags().StringSliceVar(&except, "except", nil, "Programs not to build, by their names: they are built when something needs them.")
	return c
}
