package program

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAKeptResultIsOfTheSameProgram has a test of a module build a program and go keep its result, and another file of that program end that.
func TestAKeptResultIsOfTheSameProgram(t *testing.T) {
	source, err := os.ReadFile("program.go")
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, text string) {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		at := time.Now().Add(-time.Hour)
		require.NoError(t, os.Chtimes(file, at, at)) // of what has just been written go keeps nothing
	}
	write("go.mod", "module example.org/m\n\ngo 1.26.0\n")
	write("go.sum", "")
	write("program/program.go", string(source))
	write("cmd/p/main.go", "package main\n\nimport \"example.org/m/part\"\n\nfunc main() { part.Do() }\n")
	write("part/part.go", "package part\n\nfunc Do() {}\n")
	write("m_test.go", "package m\n\nimport (\n\t\"testing\"\n\n\t\"example.org/m/program\"\n)\n\nfunc TestBuild(t *testing.T) {\n"+
		"\tif _, err := program.Build(t.Context(), \"example.org/m/cmd/p\"); err != nil {\n\t\tt.Fatal(err)\n\t}\n}\n")
	kept := func() bool {
		cmd := exec.CommandContext(t.Context(), "go", "test", ".")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return bytes.Contains(out, []byte("(cached)"))
	}
	require.False(t, kept())
	require.True(t, kept(), "nothing has changed")
	write("part/more.go", "package part\n\nfunc init() {}\n")
	require.False(t, kept(), "a package of the program has another file")
	require.True(t, kept())
	write("cmd/p/more.go", "package main\n\nfunc init() {}\n")
	require.False(t, kept(), "the program has another file")
}
