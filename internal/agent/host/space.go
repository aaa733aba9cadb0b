package host

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// FreeSpace returns how many bytes can be written below a directory.
func FreeSpace(dir string) (uint64, error) {
	var has syscall.Statfs_t
	if err := syscall.Statfs(dir, &has); err != nil {
		return 0, err
	}
	return has.Bavail * uint64(max(has.Bsize, 0)), nil
}

// Space is what a file system has left.
type Space struct {
	// Device tells file systems apart.
	Device uint64
	// Free is how many bytes can be written.
	Free uint64
}

// SpaceAt returns that of the file system a directory is on, or would be if it were made.
func SpaceAt(dir string) (Space, error) {
	var at syscall.Stat_t
	err := syscall.Stat(dir, &at)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		err = syscall.Stat(dir, &at)
	}
	if err != nil {
		return Space{}, err
	}
	free, err := FreeSpace(dir)
	return Space{Device: at.Dev, Free: free}, err
}
