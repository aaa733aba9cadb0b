package nodes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

//go:embed image
var recipe embed.FS

// repository is where the images are. The tag is the recipe's key.
const repository = "refit-test-node"

// imageKey changes whenever the image would.
func imageKey(release string) (string, error) {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s %s\n", release, runtime.GOARCH)
	err := fs.WalkDir(recipe, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := recipe.ReadFile(path)
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", path, len(data), data)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:12], err
}

// ensureImage returns the image, made if it is not there: from the cache, a registry's Debian, or Debian's packages.
func ensureImage(ctx context.Context, o Options) (string, error) {
	key, err := imageKey(o.Release)
	if err != nil {
		return "", err
	}
	image := repository + ":" + key
	if hasImage(ctx, image) {
		return image, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the image: %w", err)
	}
	b := builder{Options: o, image: image, dir: filepath.Join(cache, "refit", "nodes")}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return "", fmt.Errorf("make a place for the image: %w", err)
	}
	b.tarball = filepath.Join(b.dir, key+".tar")
	unlock, err := lock(filepath.Join(b.dir, key+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if hasImage(ctx, image) { // somebody else has just made it
		return image, nil
	}
	if err := b.make(ctx); err != nil {
		return "", fmt.Errorf("make image %s: %w", image, err)
	}
	return image, nil
}

func hasImage(ctx context.Context, image string) bool {
	_, err := docker(ctx, nil, "image", "inspect", "--format", "{{.Id}}", image)
	return err == nil
}

// lock keeps other processes from making the same image.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// builder makes the image.
type builder struct {
	Options
	image, dir, tarball string
}

func (b builder) make(ctx context.Context) error {
	began := time.Now()
	if _, err := os.Stat(b.tarball); err == nil {
		if _, err := docker(ctx, nil, "load", "--input", b.tarball); err == nil && hasImage(ctx, b.image) {
			say(b.Progress, "image %s loaded from %s in %s", b.image, b.tarball, time.Since(began).Round(time.Second))
			return nil
		}
	}
	work, err := os.MkdirTemp(b.dir, "build-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	files, err := fs.Sub(recipe, "image")
	if err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(work, "recipe"), files); err != nil {
		return err
	}
	packages, err := fs.ReadFile(files, "packages")
	if err != nil {
		return err
	}
	if err := b.build(ctx, work, strings.Join(strings.Fields(string(packages)), " ")); err != nil {
		return err
	}
	say(b.Progress, "image %s made in %s", b.image, time.Since(began).Round(time.Second))
	partial := b.tarball + ".partial"
	if _, err := docker(ctx, nil, "save", "--output", partial, b.image); err != nil {
		return err
	}
	return os.Rename(partial, b.tarball)
}

// build prefers a registry, because that takes no root.
func (b builder) build(ctx context.Context, work, packages string) error {
	base := "debian:" + b.Release + "-slim"
	short, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := docker(short, nil, "pull", "--quiet", base); err == nil {
		say(b.Progress, "making image %s from %s", b.image, base)
		_, err := docker(ctx, nil, "build", "--tag", b.image, "--build-arg", "RELEASE="+b.Release, "--build-arg", "PACKAGES="+packages, filepath.Join(work, "recipe"))
		return err
	}
	if err := b.ensureDebootstrap(ctx); err != nil {
		return err
	}
	apt := aptConfig{dir: "/etc/apt"}
	mirror := apt.mirror(b.Release)
	say(b.Progress, "no registry gives %s: making image %s with debootstrap, which takes a minute", base, b.image)
	// Mounts of debootstrap must not outlive it: the directory is removed, and with it what is mounted there.
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", filepath.Join(work, "recipe", "build.sh"), filepath.Join(work, "root"), b.Release, mirror, packages, b.image)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	cmd.Env = append(cmd.Env, apt.proxy(ctx)...)
	return runLogged(cmd)
}

func (b builder) ensureDebootstrap(ctx context.Context) error {
	switch {
	case runtime.GOOS != "linux" || os.Geteuid() != 0:
		return errors.New("no registry gives Debian, and without one it takes root on Linux: run this once as root, log in to a registry, or ask for stand-ins")
	case installed("debootstrap"):
		return nil
	case !installed("apt-get"):
		return errors.New("no registry gives Debian, and debootstrap is not installed: install it, or ask for stand-ins")
	}
	say(b.Progress, "installing debootstrap")
	for _, args := range [][]string{{"update", "-q"}, {"install", "-y", "-q", "--no-install-recommends", "debootstrap"}} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
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
