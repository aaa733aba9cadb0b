package attack

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// support are functions named as tests that attack nothing themselves.
var support = map[string]bool{"attack.TestWhatTheUserRuns": true, "attack.TestTheDocsNameEachTest": true}

// TestTheDocsNameEachTest demands that docs/security.md names each test of this package, and no test that is not there.
func TestTheDocsNameEachTest(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	require.NoError(t, err)
	there := tests(t)
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z]+\\.(?:Test|Fuzz)[A-Za-z]+)`").FindAllStringSubmatch(string(page), -1) {
		named[m[1]] = true
		require.True(t, there[m[1]], "docs/security.md names %s, which is not there", m[1])
	}
	for name := range there {
		if strings.HasPrefix(name, "attack.") && !support[name] {
			require.True(t, named[name], "docs/security.md does not say what %s shows", name)
		}
	}
}

// tests returns all tests of the project, as the name of their directory and their own.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	require.NoError(t, filepath.WalkDir(filepath.Join("..", ".."), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Abs(filepath.Dir(p))
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				all[filepath.Base(dir)+"."+f.Name.Name] = true
			}
		}
		return nil
	}))
	return all
}
