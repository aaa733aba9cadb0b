package remote

import (
	_ "embed"
	"strings"
)

var (
	//go:embed safe.sh
	safeText string
	//go:embed run.sh
	runText string
	//go:embed push.sh
	pushText string

	runScript  = compact(safeText + runText)
	pushScript = compact(safeText + pushText)
)

// The exit statuses of the scripts, besides those of shells.
const (
	statusNotWritten = 71
	statusTruncated  = 72
	statusDamaged    = 73
	statusNotRunning = 74
	statusUnsafe     = 75
	statusNoDigest   = 76
)

// compact leaves out what only people read: sudo logs all that it runs.
func compact(script string) string {
	var out strings.Builder
	for line := range strings.Lines(script) {
		if line = strings.TrimLeft(line, "\t"); !strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
	}
	return out.String()
}
