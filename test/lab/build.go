package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/capi-refit/refit/test/process"
)

// assetsEnv names a directory with etcd, kube-apiserver and kubectl, as envtest's users already have it.
const assetsEnv = "KUBEBUILDER_ASSETS"

// Binaries holds the path of each program that was asked for.
type Binaries map[Program]string

// Build returns the paths of programs, or of all if none is named. What is not in the user's cache yet is built first, one
// at a time, and progress (which may be nil) is told about it. Several processes may call Build at once.
//
// With KUBEBUILDER_ASSETS set, etcd, kube-apiserver and kubectl are taken from there.
func Build(ctx context.Context, progress io.Writer, programs ...Program) (Binaries, error) {
	if progress == nil {
		progress = io.Discard
	}
	if len(programs) == 0 {
		programs = Programs()
	}
	var all []wanted
	for _, p := range programs {
		if src, ok := sources[p]; ok {
			if _, given := asset(p); !given {
				all = append(all, wanted{p, src})
			}
		}
	}
	defer ahead(ctx, all)()
	binaries := Binaries{}
	for _, p := range programs {
		path, err := binary(ctx, progress, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		binaries[p] = path
	}
	return binaries, nil
}

func binary(ctx context.Context, progress io.Writer, p Program) (string, error) {
	src, ok := sources[p]
	if !ok {
		return "", fmt.Errorf("no such program")
	}
	if path, ok := asset(p); ok {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s is set: %w", assetsEnv, err)
		}
		return path, nil
	}
	return cached(ctx, progress, p, src)
}

// cached returns the path of a program, which is built if it is not in the cache.
func cached(ctx context.Context, progress io.Writer, p Program, src source) (string, error) {
	moduleDir, err := moduleDir(ctx, src.module)
	if err != nil {
		return "", err
	}
	path, err := cachePath(moduleDir, p, src)
	if err != nil {
		return "", err
	}
	if isFile(path) {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("making the cache directory: %w", err)
	}
	// One lock for all programs: on a small machine two builds at once take longer than one after the other.
	release, err := lock(ctx, filepath.Join(filepath.Dir(filepath.Dir(path)), "build.lock"), func() {
		_, _ = fmt.Fprintf(progress, "waiting for another process that is building…\n")
	})
	if err != nil {
		return "", err
	}
	defer release()
	if isFile(path) {
		return path, nil
	}

	start := time.Now()
	_, _ = fmt.Fprintf(progress, "building %s %s (first use, about %s)…\n", p, src.version, src.cold)
	if err := compile(ctx, moduleDir, src, path); err != nil {
		return "", err
	}
	_, _ = fmt.Fprintf(progress, "built %s %s in %s\n", p, src.version, time.Since(start).Round(time.Second))
	return path, nil
}

// compile builds src in moduleDir and puts it at path in one step, so that nobody ever sees half a program there.
// The caller holds the build lock.
func compile(ctx context.Context, moduleDir string, src source, path string) error {
	partial := path + ".partial"
	defer os.Remove(partial) //nolint:errcheck // after success it is not there anymore

	cmd := exec.CommandContext(ctx, "go", append(buildArgs(src), "-o", partial, src.pkg)...)
	cmd.Dir = moduleDir
	cmd.Env = goEnv()
	// The compilers that go started are to end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("building %s: %w", src.pkg, ctx.Err())
		}
		return fmt.Errorf("building %s: %w\n%s", src.pkg, err, process.LastLines(output.Bytes(), 20))
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("putting the program in place: %w", err)
	}
	return nil
}

func buildArgs(src source) []string {
	ldflags := "-s -w"
	if src.ldflags != "" {
		ldflags += " " + src.ldflags
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags}
	if src.tags != "" {
		args = append(args, "-tags", src.tags)
	}
	return args
}

// goEnv shields builds from what the user's environment says about another module: workspaces, vendoring, cgo, cross builds.
func goEnv() []string {
	return append(os.Environ(),
		"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
}

// asset returns where KUBEBUILDER_ASSETS has p, if it is set and p is one of those that are looked for there.
func asset(p Program) (string, bool) {
	dir := os.Getenv(assetsEnv)
	if dir == "" {
		return "", false
	}
	switch p {
	case Etcd, KubeAPIServer, Kubectl:
		return filepath.Join(dir, string(p)), true
	default:
		return "", false
	}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
