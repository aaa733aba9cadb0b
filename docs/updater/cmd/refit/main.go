// refit with an updater for AcmeConfigs.
package main

import (
	"github.com/capi-refit/refit"
	"github.com/capi-refit/refit/docs/updater/banner"
)

func main() { refit.Main(banner.New) }
