// Package refit is the program, for those who build it with updaters of their own.
package refit

import (
	"runtime/debug"

	"github.com/capi-refit/refit/internal/cli"
	"github.com/capi-refit/refit/updaters"
)

// version is stamped by the build: -ldflags '-X github.com/capi-refit/refit.version=v1.2.3'. Without that it is the version of the
// module that the program is of.
var version string

// Main runs the command that the program's arguments name, with the updaters besides refit's own, and exits with 1 if it fails. Where two
// updaters cover the same field, refit's own brings it to the node; of the others the first one. Two of the same name are an error.
func Main(others ...updaters.Constructor) {
	if version == "" {
		version = "unknown"
		if info, ok := debug.ReadBuildInfo(); ok {
			version = info.Main.Version
		}
	}
	cli.Main(version, others...)
}
