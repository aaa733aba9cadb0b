// Package hosttest has what stands for a node in tests: a directory for its files, and a service manager.
package hosttest

import (
	"os"
	"path/filepath"

	"github.com/stretchr/testify/require"
)

// T is a test or a property.
type T interface {
	require.TestingT
	Helper()
}

// Files are those of a node.
type Files struct {
	// Dir stands for the node's root.
	Dir string
	t   T
}

// NewFiles returns the files below a directory.
func NewFiles(t T, dir string) Files { return Files{Dir: dir, t: t} }

// Path returns where a file of the node is.
func (f Files) Path(p string) string { return filepath.Join(f.Dir, p) }

// Put writes a file, which everybody may read.
func (f Files) Put(p, content string) {
	f.t.Helper()
	f.PutMode(p, content, 0o644)
}

// PutMode writes a file with permissions, whatever they were.
func (f Files) PutMode(p, content string, mode os.FileMode) {
	f.t.Helper()
	require.NoError(f.t, os.MkdirAll(filepath.Dir(f.Path(p)), 0o755)) //nolint:gosec // as on a node
	require.NoError(f.t, os.WriteFile(f.Path(p), []byte(content), mode))
	require.NoError(f.t, os.Chmod(f.Path(p), mode))
}

// Get returns what is in a file, or "(missing)".
func (f Files) Get(p string) string {
	f.t.Helper()
	data, err := os.ReadFile(f.Path(p))
	if os.IsNotExist(err) {
		return "(missing)"
	}
	require.NoError(f.t, err)
	return string(data)
}
