package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAffected(t *testing.T) {
	packages := []goPackage{
		{ImportPath: "m/api", Dir: "api"},
		{ImportPath: "m/node", Dir: "internal/node", Imports: []string{"m/api"}},
		{ImportPath: "m/cmd", Dir: "cmd", Imports: []string{"m/node", "fmt"}},
		{ImportPath: "m/fake", Dir: "fake"},
		{ImportPath: "m/lease", Dir: "lease", TestImports: []string{"m/fake"}},
		{ImportPath: "m/slots", Dir: "slots", XTestImports: []string{"m/lease"}},
	}
	for name, tc := range map[string]struct{ files, want string }{
		"nothing":                              {"", ""},
		"who imports it, by way of others":     {"api/types.go", "m/api m/node m/cmd"},
		"who imports it in tests, and no more": {"fake/fake.go", "m/fake m/lease"},
		"a test alone":                         {"cmd/main_test.go", "m/cmd"},
		"test data":                            {"internal/node/testdata/a/b.json", "m/node m/cmd"},
		"a page":                               {"docs/a.md README.md", ""},
		"a module":                             {"go.mod", "m/api m/node m/cmd m/fake m/lease m/slots"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, strings.Fields(tc.want), append([]string{}, affected(packages, strings.Fields(tc.files))...))
		})
	}
}

// TestRun asks git and go about a module with a change that is committed to nothing, and a file that git does not know.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	}
	write("go.mod", "module example.org/m\n\ngo 1.26\n")
	write("a/a.go", "package a\n")
	write("b/b.go", "package b\n\nimport _ \"example.org/m/a\"\n")
	write("c/c.go", "package c\n")
	git := func(args ...string) {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-qm", "Begin")
	said := func() string {
		var out strings.Builder
		require.NoError(t, run(t.Context(), "HEAD", &out))
		return out.String()
	}
	require.Empty(t, said())
	write("a/a.go", "package a\n\nconst A = 1\n")
	require.Equal(t, "example.org/m/a\nexample.org/m/b\n", said())
	git("commit", "-qam", "Change")
	write("c/new.go", "package c\n")
	require.Equal(t, "example.org/m/c\n", said())
	require.Error(t, run(context.Background(), "no-such-commit", &strings.Builder{}))
}
