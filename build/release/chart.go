package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/capi-refit/refit/build/manifests"
)

// chart packs the Helm chart, with the version that is released.
func chart(dir string, v version, at time.Time) ([]byte, error) {
	var files []file
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(os.DirFS(dir), name)
		if err != nil {
			return err
		}
		if name == "Chart.yaml" {
			if data, err = versioned(data, v); err != nil {
				return err
			}
		}
		files = append(files, file{path.Join("refit", name), 0o644, data})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tarball(files, at)
}

// versioned returns Chart.yaml with the version in the place of what it has until it is released.
func versioned(data []byte, v version) ([]byte, error) {
	text := string(data)
	for is, becomes := range map[string]string{"\nversion: 0.0.0-dev\n": "\nversion: " + v.plain() + "\n", "\nappVersion: dev\n": "\nappVersion: " + v.String() + "\n"} {
		var err error
		if text, err = manifests.ReplaceOnce(text, is, becomes); err != nil {
			return nil, fmt.Errorf("the chart's Chart.yaml: %w", err)
		}
	}
	return []byte(text), nil
}
