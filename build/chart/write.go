package main

import (
	"bytes"
	"os"
	"path/filepath"
)

// write writes the templates, and removes those that are made no more. Notes are not made here.
func write(dir string, files map[string][]byte) error {
	old, err := templatesIn(dir)
	if err != nil {
		return err
	}
	for name := range old {
		if _, ok := files[name]; !ok {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	for name, data := range files {
		if bytes.Equal(old[name], data) {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil { //nolint:gosec // the repository's files are for everybody
			return err
		}
	}
	return nil
}

// templatesIn returns the templates that a directory has.
func templatesIn(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, pattern := range []string{"*.yaml", "crds/*.yaml"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			name, err := filepath.Rel(dir, path)
			if err != nil {
				return nil, err
			}
			if files[name], err = os.ReadFile(path); err != nil {
				return nil, err
			}
		}
	}
	return files, nil
}
