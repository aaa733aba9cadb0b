package host

import "syscall"

// FreeSpace returns how many bytes can be written below a directory.
func FreeSpace(dir string) (uint64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return fs.Bavail * uint64(max(fs.Bsize, 0)), nil
}
