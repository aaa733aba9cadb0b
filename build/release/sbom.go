package main

import (
	"path/filepath"
	"time"

	"github.com/capi-refit/refit/build/spdx"
)

// sbom lists the modules in the command, of all platforms together.
func (o options) sbom(v version, at time.Time) ([]byte, error) {
	refit := spdx.Program{Name: "refit", Path: "github.com/capi-refit/refit"}
	for _, p := range platforms {
		refit.Files = append(refit.Files, filepath.Join(o.programs, p.program()))
	}
	return spdx.List("refit "+v.String(), downloads+v.String()+"/refit.spdx.json", v.String(), at, refit)
}
