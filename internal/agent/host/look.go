package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Info is what a directory tells of one of its entries.
type Info struct {
	name string
	stat unix.Stat_t
}

var _ fs.FileInfo = Info{}

// Name implements fs.FileInfo.
func (i Info) Name() string { return i.name }

// Size implements fs.FileInfo.
func (i Info) Size() int64 { return i.stat.Size }

// ModTime implements fs.FileInfo.
func (i Info) ModTime() time.Time { return time.Unix(i.stat.Mtim.Unix()) }

// IsDir implements fs.FileInfo.
func (i Info) IsDir() bool { return i.Mode().IsDir() }

// Sys implements fs.FileInfo.
func (i Info) Sys() any {
	return &syscall.Stat_t{Uid: i.stat.Uid, Gid: i.stat.Gid, Mode: i.stat.Mode, Nlink: i.stat.Nlink, Dev: i.stat.Dev, Ino: i.stat.Ino}
}

// Mode implements fs.FileInfo.
func (i Info) Mode() fs.FileMode { return modeOf(i.stat.Mode) }

func modeOf(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		m |= fs.ModeDir
	case unix.S_IFLNK:
		m |= fs.ModeSymlink
	case unix.S_IFIFO:
		m |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		m |= fs.ModeSocket
	case unix.S_IFCHR:
		m |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		m |= fs.ModeDevice
	}
	for bit, flag := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if mode&bit != 0 {
			m |= flag
		}
	}
	return m
}

func (p *place) info() (Info, error) {
	stat, err := p.stat()
	return Info{p.name, stat}, err
}

// entries returns what is in the directory that has the name, sorted by name.
func (p *place) entries() ([]Info, error) {
	f, err := p.open(forDir, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	all := make([]Info, 0, len(names))
	for _, name := range names {
		i := Info{name: name}
		err := unix.Fstatat(int(f.Fd()), name, &i.stat, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case err == nil:
			all = append(all, i)
		case !errors.Is(err, unix.ENOENT): // which it is since a moment ago
			return nil, &fs.PathError{Op: "stat", Path: f.Name() + "/" + name, Err: err}
		}
	}
	return all, nil
}

// readlink returns where the link that has the name leads.
func (p *place) readlink() (string, error) {
	at, err := p.dir()
	if err != nil {
		return "", err
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(at, p.name, buf)
	if err != nil {
		return "", p.failed("readlink", err)
	}
	return string(buf[:n]), nil
}

// read opens the regular file that has the name. shown is what it is called.
func (p *place) read(shown string) (*os.File, unix.Stat_t, error) {
	stat, err := p.stat()
	if err != nil {
		return nil, stat, err
	}
	regular := func() error {
		if mode := modeOf(stat.Mode); !mode.IsRegular() { // opening a pipe or a device can block, or worse
			return fmt.Errorf("%s is there already and is %s, not a regular file", shown, kindOf(mode))
		}
		return nil
	}
	if err := regular(); err != nil {
		return nil, stat, err
	}
	f, err := p.open(unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, stat, err
	}
	if err = unix.Fstat(int(f.Fd()), &stat); err == nil { // another one may have the name by now
		err = regular()
	}
	if err != nil {
		_ = f.Close()
		return nil, stat, err
	}
	return f, stat, nil
}

// size returns how many bytes the regular files have that have the name, or are below it.
func (p *place) size() (uint64, error) {
	at, err := p.dir()
	if err == nil {
		var total uint64
		if total, err = sizeOfTree(at, p.name); err == nil {
			return total, nil
		}
		err = p.failed("read", err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return 0, err
}

func sizeOfTree(at int, name string) (uint64, error) {
	var stat unix.Stat_t
	err := unix.Fstatat(at, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT): // files can go at any time
		return 0, nil
	case err != nil:
		return 0, err
	case stat.Mode&unix.S_IFMT == unix.S_IFREG:
		return uint64(max(stat.Size, 0)), nil
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return 0, nil
	}
	fd, err := openat(at, name, forDir, 0)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return 0, err
	}
	var total uint64
	for _, n := range names {
		below, err := sizeOfTree(fd, n)
		if err != nil {
			return 0, err
		}
		total += below
	}
	return total, nil
}

// below reports whether a path is a directory or something in it.
func below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
