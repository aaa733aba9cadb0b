package nodes

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/capi-refit/refit/test/engine"
)

//go:embed image
var recipe embed.FS

// repository is where the images are. The tag is the recipe's key.
const repository = "refit-test-node"

// debian is what the nodes are.
func debian(o Options) (Debian, error) {
	files, err := fs.Sub(recipe, "image")
	return Debian{Release: o.Release, Recipe: files, More: o.Packages, Progress: o.Progress}, err
}

// ensureImage returns the image, made if it is not there: from the cache, a registry's Debian, or Debian's packages.
func ensureImage(ctx context.Context, o Options) (string, error) {
	root, err := debian(o)
	if err != nil {
		return "", err
	}
	key, err := root.Key()
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
	b := builder{Options: o, debian: root, image: image, dir: filepath.Join(cache, "refit", "nodes")}
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

func hasImage(ctx context.Context, image string) bool { return engine.Engine{}.HasImage(ctx, image) }

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
	debian              Debian
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
	if err := b.build(ctx, work); err != nil {
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
func (b builder) build(ctx context.Context, work string) error {
	base := "debian:" + b.Release + "-slim"
	short, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := docker(short, nil, "pull", "--quiet", base); err == nil {
		say(b.Progress, "making image %s from %s", b.image, base)
		return b.buildFrom(ctx, filepath.Join(work, "recipe"))
	}
	say(b.Progress, "no registry gives %s: making image %s with debootstrap, which takes a minute", base, b.image)
	tarball := filepath.Join(work, "root.tar")
	if err := b.debian.WriteRoot(ctx, tarball); err != nil {
		return err
	}
	_, err := docker(ctx, nil, "import", "--change", `ENTRYPOINT ["/entrypoint"]`, "--change", "ENV container=docker", tarball, b.image)
	return err
}

// buildFrom builds the recipe's Dockerfile in dir.
func (b builder) buildFrom(ctx context.Context, dir string) error {
	packages, err := b.debian.Packages()
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, b.debian.Recipe); err != nil {
		return err
	}
	_, err = docker(ctx, nil, "build", "--tag", b.image,
		"--build-arg", "RELEASE="+b.Release, "--build-arg", "PACKAGES="+strings.Join(packages, " "), dir)
	return err
}
