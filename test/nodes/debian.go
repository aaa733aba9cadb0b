package nodes

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

//go:embed debootstrap.sh
var debootstrapScript []byte

// Debian is a root file system to make out of Debian's packages, without a registry.
type Debian struct {
	Release string
	// Recipe has files that are copied to /recipe while /recipe/setup.sh runs inside the root. A file "packages" names the
	// packages to install.
	Recipe fs.FS
	// More are packages to install besides those.
	More []string
	// Progress gets a line for each thing that takes time.
	Progress io.Writer
}

// Key changes whenever the root would.
func (d Debian) Key() (string, error) {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s %s\n%s", d.Release, runtime.GOARCH, debootstrapScript)
	err := fs.WalkDir(d.Recipe, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(d.Recipe, path)
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", path, len(data), data)
		return err
	})
	if len(d.More) > 0 {
		_, _ = fmt.Fprintf(sum, "more %q", d.More)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], err
}

// Packages are those that the recipe names, and more.
func (d Debian) Packages() ([]string, error) {
	packages, err := fs.ReadFile(d.Recipe, "packages")
	if err != nil {
		return nil, fmt.Errorf("read the recipe: %w", err)
	}
	return append(strings.Fields(string(packages)), d.More...), nil
}

// WriteRoot makes the root file system and puts it into a tar file. It takes root on Linux, debootstrap or the right to
// install it, and about a minute.
func (d Debian) WriteRoot(ctx context.Context, tarball string) error {
	if err := d.ensureDebootstrap(ctx); err != nil {
		return err
	}
	packages, err := d.Packages()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(tarball), "debian-")
	if err != nil {
		return fmt.Errorf("make a place for Debian: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.CopyFS(filepath.Join(work, "recipe"), d.Recipe); err != nil {
		return fmt.Errorf("copy the recipe: %w", err)
	}
	script := filepath.Join(work, "debootstrap.sh")
	if err := os.WriteFile(script, debootstrapScript, 0o600); err != nil {
		return fmt.Errorf("copy the recipe: %w", err)
	}
	apt := aptConfig{dir: "/etc/apt"}
	partial := tarball + ".partial"
	defer func() { _ = os.Remove(partial) }()
	// Mounts of debootstrap must not outlive it: the directory is removed, and with it what is mounted there.
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", script,
		filepath.Join(work, "root"), d.Release, apt.mirror(d.Release), strings.Join(packages, " "), partial)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	cmd.Env = append(cmd.Env, apt.proxy(ctx)...)
	if err := runLogged(cmd); err != nil {
		return fmt.Errorf("debootstrap: %w", err)
	}
	return os.Rename(partial, tarball)
}

func (d Debian) ensureDebootstrap(ctx context.Context) error {
	switch {
	case runtime.GOOS != "linux" || os.Geteuid() != 0:
		return errors.New("no registry gives Debian, and without one it takes root on Linux: run this once as root, log in to a registry, or ask for stand-ins")
	case installed("debootstrap"):
		return nil
	case !installed("apt-get"):
		return errors.New("no registry gives Debian, and debootstrap is not installed: install it, or ask for stand-ins")
	}
	// Another process may need it for another image, and one apt-get at a time can read packages.
	unlock, err := lock(filepath.Join(os.TempDir(), "refit-debootstrap.lock"))
	if err != nil {
		return fmt.Errorf("install debootstrap: %w", err)
	}
	defer unlock()
	if installed("debootstrap") {
		return nil
	}
	say(d.Progress, "installing debootstrap")
	for _, args := range [][]string{{"update", "-q"}, {"install", "-y", "-q", "--no-install-recommends", "debootstrap"}} {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if err := runLogged(cmd); err != nil {
			return fmt.Errorf("install debootstrap: %w", err)
		}
	}
	return nil
}

func installed(program string) bool {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		if _, err := os.Stat(filepath.Join(dir, program)); err == nil {
			return true
		}
	}
	return false
}

// runLogged ends the command with its children if ctx does, and puts the end of what it said into the error.
func runLogged(cmd *exec.Cmd) error {
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return explain(cmd.Run(), log.Bytes())
}
