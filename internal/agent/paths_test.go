package agent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pathless is what the agent's packages may use of packages that find files by path. All else can be led astray by whoever owns a directory
// on the way, and is done by package host.
var pathless = map[string][]string{
	"os": {
		"ErrNotExist", "File", "FileInfo", "FileMode", "Getuid", "Geteuid", "Root", "SameFile",
		"O_APPEND", "O_CREATE", "O_EXCL", "O_RDONLY", "O_RDWR", "O_TRUNC", "O_WRONLY",
	},
	"syscall": {
		"EACCES", "EINTR", "EINVAL", "ENOSPC", "ENOTDIR", "EROFS", "ETXTBSY", "EWOULDBLOCK", "Errno", "Fdatasync", "Flock", "LOCK_EX", "LOCK_NB",
		"LOCK_SH", "O_NONBLOCK", "Stat_t", "SysProcAttr",
	},
	"path/filepath": {"Base", "Clean", "Dir", "Ext", "IsAbs", "IsLocal", "Join", "Rel"},
}

// exceptions are by file and use, with the reason.
var exceptions = map[string]string{
	"gate/gate.go syscall.Exec":         "runs /proc/self/fd/N, which is the file that was verified",
	"agent.go os.Open":                  "the program that runs, of which the digest is told; its directory is looked at before it is run again",
	"launch.go os.Stat":                 "/run/systemd/system, where only root writes",
	"release/release.go syscall.Access": "asks whether a file system is read-only, for a better message",
}

// TestFilesAreFoundByHandles keeps calls that take a path out of all packages of the agent but host.
func TestFilesAreFoundByHandles(t *testing.T) {
	seen := map[string]bool{}
	files := 0
	require.NoError(t, filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (p == "host" || d.Name() == "testdata" || strings.HasSuffix(d.Name(), "test")) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(p) != ".go" || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		files++
		for _, use := range usesOf(t, p) {
			key := p + " " + use
			if exceptions[key] == "" {
				assert.Fail(t, "a file is found by its path", "%s: let package host do it, which holds the directory open", key)
			}
			seen[key] = true
		}
		return nil
	}))
	require.Greater(t, files, 50)
	for key := range exceptions {
		assert.True(t, seen[key], "%s is no longer there", key)
	}
}

// usesOf returns what a file uses of those packages, and may not.
func usesOf(t *testing.T, p string) (uses []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), p, nil, 0)
	require.NoError(t, err)
	names := map[string]string{}
	for _, imported := range file.Imports {
		name, err := strconv.Unquote(imported.Path.Value)
		require.NoError(t, err)
		if name == "golang.org/x/sys/unix" || name == "io/ioutil" {
			uses = append(uses, name)
		}
		if _, ok := pathless[name]; ok {
			as := filepath.Base(name)
			if imported.Name != nil {
				as = imported.Name.Name
			}
			names[as] = name
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, ok := selector.X.(*ast.Ident)
		if !ok {
			return true
		}
		if name, ok := names[of.Name]; ok && !slices.Contains(pathless[name], selector.Sel.Name) {
			uses = append(uses, of.Name+"."+selector.Sel.Name)
		}
		return true
	})
	return uses
}
