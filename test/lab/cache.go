package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// cacheDir is where built programs and locks are kept between runs.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory: %w", err)
	}
	return filepath.Join(dir, "refit", "lab"), nil
}

func cachePath(moduleDir string, p Program, src source) (string, error) {
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	key, err := cacheKey(moduleDir, src)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, key, string(p)), nil
}

// cacheKey is a directory name that changes with everything that goes into src's executable: the versions of all modules,
// the platform and the flags.
func cacheKey(moduleDir string, src source) (string, error) {
	sum := sha256.New()
	pinned := append([]string{"go.mod", "go.sum"}, src.files...)
	if src.module == rootModule {
		pinned = src.files // they import nothing but the standard library
	}
	for _, name := range pinned {
		file, err := os.Open(filepath.Join(moduleDir, name))
		if err != nil {
			return "", fmt.Errorf("reading pinned versions: %w", err)
		}
		_, err = io.Copy(sum, file)
		if err = errors.Join(err, file.Close()); err != nil {
			return "", fmt.Errorf("reading pinned versions: %w", err)
		}
	}
	_, _ = fmt.Fprintln(sum, strings.Join(buildArgs(src), "\n"))
	return strings.Join([]string{
		src.module, src.version, runtime.GOOS, runtime.GOARCH, hex.EncodeToString(sum.Sum(nil))[:12],
	}, "-"), nil
}

// lock takes the lock at path and returns what gives it back. While someone else holds it, lock waits until ctx ends, and
// calls waiting once. The kernel drops the lock when its holder dies.
func lock(ctx context.Context, path string, waiting func()) (release func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	told := false
	err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			if !told {
				told = true
				waiting()
			}
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}
