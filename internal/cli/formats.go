package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/internal/admin"
)

// checkFormat returns an error if lists can't be shown so.
func checkFormat(output string) error {
	if formats := admin.Formats(); !slices.Contains(formats, output) {
		return fmt.Errorf("--output is %q and can be %s", output, strings.Join(formats, ", "))
	}
	return nil
}

// completeFormats has a shell complete the formats of lists.
func completeFormats(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(admin.Formats(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}
