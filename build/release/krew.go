package main

import "sigs.k8s.io/yaml"

// downloads is where the files of releases are.
const downloads = "https://github.com/capi-refit/refit/releases/download/"

// krew returns the manifest by which krew installs the command as kubectl refit.
func krew(v version, archives []archive) ([]byte, error) {
	var platforms []any
	for _, a := range archives {
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"os": a.os, "arch": a.arch}},
			"uri":      downloads + v.String() + "/" + a.name,
			"sha256":   a.sha256,
			"bin":      a.program,
			"files":    []any{map[string]any{"from": a.program, "to": "."}, map[string]any{"from": "LICENSE", "to": "."}},
		})
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]any{"name": "refit"},
		"spec": map[string]any{
			"version":          v.String(),
			"homepage":         "https://github.com/capi-refit/refit",
			"shortDescription": "Update Cluster API machines in place",
			"description":      "Shows what in-place updates of Cluster API machines do and wait for, holds and releases machines,\nand says before a change what it takes.\n",
			"platforms":        platforms,
		},
	})
}
