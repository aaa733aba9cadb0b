// Changed prints the packages whose tests a change can break: those with files that differ from a commit, and all that import
// them. Files that git does not track yet count, unless it ignores them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	base := "HEAD"
	if len(os.Args) > 1 {
		base = os.Args[1]
	}
	if err := run(ctx, base, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1) //nolint:gocritic // there is nothing left to stop
	}
}

func run(ctx context.Context, base string, out io.Writer) error {
	files, err := changedFiles(ctx, base)
	if err != nil {
		return err
	}
	packages, err := list(ctx)
	if err != nil {
		return err
	}
	for _, name := range affected(packages, files) {
		if _, err := fmt.Fprintln(out, name); err != nil {
			return err
		}
	}
	return nil
}

// changedFiles returns the paths of changed files below the working directory, which is the module's root.
func changedFiles(ctx context.Context, base string) ([]string, error) {
	var files []string
	for _, args := range [][]string{{"diff", "--name-only", "--no-renames", "--relative", base, "--"}, {"ls-files", "--others", "--exclude-standard"}} {
		out, err := output(ctx, "git", args...)
		if err != nil {
			return nil, err
		}
		files = append(files, strings.Fields(string(out))...)
	}
	return files, nil
}

// goPackage is what `go list -json` says of a package.
type goPackage struct {
	ImportPath, Dir                    string
	Imports, TestImports, XTestImports []string
}

// list returns the packages of the module, their directories relative to the module's root.
func list(ctx context.Context) ([]goPackage, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	out, err := output(ctx, "go", "list", "-json=ImportPath,Dir,Imports,TestImports,XTestImports", "./...")
	if err != nil {
		return nil, err
	}
	var packages []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list says: %w", err)
		}
		if p.Dir, err = filepath.Rel(root, p.Dir); err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // git, with a commit that whoever runs this has named
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, nil
}
