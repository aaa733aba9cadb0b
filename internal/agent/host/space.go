package host

import "golang.org/x/sys/unix"

// Space is what a file system has left.
type Space struct {
	// Device tells file systems apart.
	Device uint64
	// Free is how many bytes can be written.
	Free uint64
}

// SpaceAt returns that of the file system a directory is on, or would be if it were made.
func SpaceAt(dir string) (Space, error) { return Root{Dir: "/"}.Space(dir) }

// FreeSpace returns how many bytes can be written below a directory.
func FreeSpace(dir string) (uint64, error) {
	s, err := SpaceAt(dir)
	return s.Free, err
}

func (p *place) space() (Space, error) {
	fd := p.dirs[len(p.dirs)-1].fd
	if len(p.missing) == 0 { // the name can be that of another file system
		if at, err := openat(fd, p.name, forPath|unix.O_DIRECTORY, 0); err == nil {
			defer func() { _ = unix.Close(at) }()
			fd = at
		}
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return Space{}, p.failed("stat", err)
	}
	var has unix.Statfs_t
	if err := unix.Fstatfs(fd, &has); err != nil {
		return Space{}, p.failed("statfs", err)
	}
	return Space{Device: stat.Dev, Free: has.Bavail * uint64(max(has.Bsize, 0))}, nil
}
