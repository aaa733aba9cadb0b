// Reference writes the pages about all commands, metrics and alerts, in docs/reference.
package main

import (
	"fmt"
	"os"

	"github.com/capi-refit/refit/build/metrics"
	"github.com/capi-refit/refit/internal/cli"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run() error {
	ofMetrics, err := metrics.Page(".")
	if err != nil {
		return err
	}
	ofAlerts, err := metrics.AlertsPage(".")
	if err != nil {
		return err
	}
	for name, page := range map[string]string{"cli": cli.Reference(), "metrics": ofMetrics, "alerts": ofAlerts} {
		if err := os.WriteFile("docs/reference/"+name+".md", []byte(page), 0o644); err != nil { //nolint:gosec // the repository's files are for everybody
			return err
		}
	}
	return nil
}
