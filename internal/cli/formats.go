package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/internal/admin"
)

// checkFormat returns an error if something can't be shown so that has the formats; lists have all.
func checkFormat(output string, formats ...string) error {
	if len(formats) == 0 {
		formats = admin.Formats()
	}
	if !slices.Contains(formats, output) {
		return fmt.Errorf("--output is %q and can be %s", output, strings.Join(formats, ", "))
	}
	return nil
}

// completeFormats has a shell complete the formats of lists.
func completeFormats(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(admin.Formats(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}
