// Package program builds programs of this module for tests. go keeps the results of tests by what they were built from and what they opened, and does not see what a
// build that a test runs is made of: so all of that is opened.
package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build returns a program of this module for this machine's architecture and Linux, by its import path. Flags are those of go build.
func Build(ctx context.Context, path string, flags ...string) ([]byte, error) {
	if err := see(ctx, path); err != nil {
		return nil, fmt.Errorf("find what %s is made of: %w", path, err)
	}
	dir, err := os.MkdirTemp("", "refit-program-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "program")
	if _, err := run(ctx, append(append([]string{"build", "-trimpath", "-o", file}, flags...), path)...); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

// see opens the directories of this module's packages that a program is made of, which is how go learns of their files, and what says of which modules it is made.
func see(ctx context.Context, path string) error {
	out, err := run(ctx, "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.Dir}}\n{{.GoMod}}\n{{end}}{{end}}", path)
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(out)) {
		if err := open(name); err != nil {
			return err
		}
		if filepath.Base(name) == "go.mod" {
			if err := open(strings.TrimSuffix(name, ".mod") + ".sum"); err != nil {
				return err
			}
		}
	}
	return nil
}

func open(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return f.Close()
}

func run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, said.String())
	}
	return out, nil
}
