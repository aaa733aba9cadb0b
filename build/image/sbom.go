package main

import (
	"path/filepath"

	"github.com/capi-refit/refit/build/spdx"
)

// sbom lists every program that is put into the image, and the modules of each.
func (o options) sbom() ([]byte, error) {
	var all []spdx.Program
	for _, name := range contents() {
		all = append(all, spdx.Program{Name: name, Files: []string{filepath.Join(o.bin, filepath.FromSlash(name))}})
	}
	return spdx.List("the image of refit "+o.version, "https://github.com/capi-refit/refit/image/"+o.version, o.version, o.at(), all...)
}
