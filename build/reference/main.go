// Reference writes the page about all commands, docs/reference/cli.md.
package main

import (
	"fmt"
	"os"

	"github.com/capi-refit/refit/internal/cli"
)

func main() {
	const page = "docs/reference/cli.md"
	if err := os.WriteFile(page, []byte(cli.Reference()), 0o644); err != nil { //nolint:gosec // the repository's files are for everybody
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}
