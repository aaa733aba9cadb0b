package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxLinks is how many symbolic links a path may lead through, as in the kernel.
	maxLinks = 40
	// forPath opens what is there itself, and not what a link leads to. It reads nothing: opening a pipe or a device so has no effect.
	forPath = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	// forDir opens a directory for reading, and nothing else that is there.
	forDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
)

// place is a name in a directory that is held open. Whatever the owners of the directories above do to them meanwhile, what is done
// to a place is done in that directory.
type place struct {
	// base is the directory that the walk began in.
	base string
	// dirs are the directories on the way, base first. The last one is that of the name, or the deepest one that is there.
	dirs []dir
	// missing are the directories below it that are not there.
	missing []string
	// name is the last component, or "." for base itself.
	name string
	// labels are those that what is made gets, or nil.
	labels *labels
}

// dir is a directory that is held open.
type dir struct {
	fd   int
	name string
}

// walker goes from directory to directory, one component at a time, each opened in the one before. So it can't be led astray by whoever
// exchanges a directory on the way for a link: a link is looked at before it is followed. Kernels have had openat(2) for this since 2.6.16;
// openat2(2) can refuse all links, but not follow some.
type walker struct {
	place
	// follow reports that the last component is followed if it is a link.
	follow bool
	// owned reports that no directory on the way may belong to, or be changed by, others.
	owned bool
	links int
	// leaf is the component that is neither a directory nor a link that is followed. It is the last one.
	leaf string
}

// walk returns the place of p below the directory base, of which links don't lead out. p, and more above it, may be missing.
func walk(base, p string, follow bool) (*place, error) {
	return walker{place: place{base: base}, follow: follow}.walk(p)
}

func (w walker) walk(p string) (*place, error) {
	err := w.begin()
	if err == nil {
		err = w.steps(p)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	w.settle()
	return &w.place, nil
}

// begin opens the directory that the walk begins in, through links: it is not of the node's making.
func (w *walker) begin() error {
	fd, err := openat(unix.AT_FDCWD, w.base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: w.base, Err: err}
	}
	return w.push(fd, "")
}

func (w *walker) steps(p string) error {
	for rest := components(p); len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch {
		case w.leaf != "":
			return w.failed("open", unix.ENOTDIR)
		case name == "..":
			w.up()
			continue
		case len(w.missing) > 0:
			w.missing = append(w.missing, name)
			continue
		}
		target, err := w.enter(name, w.follow || len(rest) > 0)
		if err != nil {
			return err
		}
		if target == "" {
			continue
		}
		if w.links++; w.links > maxLinks {
			return fmt.Errorf("%s leads through too many symbolic links", p)
		}
		if path.IsAbs(target) {
			w.cut(1)
		}
		rest = append(components(target), rest...)
	}
	return nil
}

// components returns those of a path that lead somewhere.
func components(p string) []string {
	all := strings.Split(p, "/")
	names := all[:0]
	for _, name := range all {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

// enter goes on to an entry of the directory. If that is a link to follow, it returns where it leads.
func (w *walker) enter(name string, follow bool) (target string, err error) {
	at := w.dirs[len(w.dirs)-1].fd
	fd, err := openat(at, name, forPath|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOTDIR) { // a link, or what else is no directory
		return w.enterOther(at, name, follow)
	}
	return "", w.entered(fd, name, err)
}

func (w *walker) entered(fd int, name string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		w.missing = append(w.missing, name)
		return nil
	case err != nil:
		return &fs.PathError{Op: "open", Path: filepath.Join(w.host(), name), Err: err}
	}
	return w.push(fd, name)
}

// enterOther enters what is no directory. Owner and target are those of one and the same link, also if another one has its name by now.
func (w *walker) enterOther(at int, name string, follow bool) (target string, err error) {
	fd, err := openat(at, name, forPath, 0)
	if err != nil {
		return "", w.entered(-1, name, err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		_ = unix.Close(fd)
		return "", w.failed("stat", err)
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR { // since a moment ago
		return "", w.push(fd, name)
	}
	defer func() { _ = unix.Close(fd) }()
	if stat.Mode&unix.S_IFMT != unix.S_IFLNK || !follow {
		w.leaf = name
		return "", nil
	}
	if err := w.followed(at, name, stat); err != nil {
		return "", err
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", w.failed("readlink", err)
	}
	return string(buf[:n]), nil
}

// followed returns an error if a link is not to be followed: who may make one in a directory of his own must not have the agent write, or
// read, wherever that leads. A link of root's that has a second name can have been given that by anybody, in a directory of his own.
func (w *walker) followed(at int, name string, link unix.Stat_t) error {
	shown := path.Join(w.at(), name)
	if uid := int(link.Uid); !ours(link.Uid) {
		return fmt.Errorf("%s is a symbolic link of user %d, which is not followed: it could lead anywhere on the node; remove it there, or have "+
			"it belong to root", shown, uid)
	}
	if link.Nlink <= 1 { // some file systems don't count
		return nil
	}
	var in unix.Stat_t
	if err := unix.Fstat(at, &in); err != nil {
		return w.failed("stat", err)
	}
	if !ours(in.Uid) || shared(in) {
		return fmt.Errorf("%s is a symbolic link that has a second name, in a directory that others than root can write to, and is not followed: "+
			"remove it there", shown)
	}
	return nil
}

func (w *walker) push(fd int, name string) error {
	w.dirs = append(w.dirs, dir{fd, name})
	if !w.owned {
		return nil
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return w.failed("stat", err)
	}
	// In a sticky directory others can't exchange what is not theirs, and the next component must not be.
	if !ours(stat.Uid) || shared(stat) && stat.Mode&unix.S_ISVTX == 0 {
		return notOwned(w.host(), stat)
	}
	return nil
}

// up goes to the directory above, which for base is base.
func (w *walker) up() {
	if n := len(w.missing); n > 0 {
		w.missing = w.missing[:n-1]
	} else {
		w.cut(max(1, len(w.dirs)-1))
	}
}

// cut goes back to the first directories.
func (p *place) cut(n int) {
	for _, d := range p.dirs[n:] {
		_ = unix.Close(d.fd)
	}
	p.dirs = p.dirs[:n]
}

// settle takes the last component for the name.
func (w *walker) settle() {
	switch n := len(w.missing); {
	case w.leaf != "":
		w.name = w.leaf
	case n > 0:
		w.name, w.missing = w.missing[n-1], w.missing[:n-1]
	case len(w.dirs) > 1:
		w.name = w.dirs[len(w.dirs)-1].name
		w.cut(len(w.dirs) - 1)
	default:
		w.name = "."
	}
}

// close releases the directories.
func (p *place) close() { p.cut(0) }

// at returns where the place is, as seen from base.
func (p *place) at() string {
	names := []string{"/"}
	for _, d := range p.dirs {
		names = append(names, d.name)
	}
	return path.Join(append(append(names, p.missing...), p.name)...)
}

// host returns where the place is. It is for people and for comparing: what is done by it can be led astray.
func (p *place) host() string { return filepath.Join(p.base, p.at()) }

func (p *place) failed(op string, err error) error {
	return &fs.PathError{Op: op, Path: p.host(), Err: err}
}

// dir returns the directory that the name is in.
func (p *place) dir() (int, error) {
	if len(p.missing) > 0 {
		return -1, p.failed("open", unix.ENOENT)
	}
	return p.dirs[len(p.dirs)-1].fd, nil
}

// openat is openat(2). A signal does not end it.
func openat(at int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(at, name, flags, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// open opens what has the name, and not what a link leads to.
func (p *place) open(flags int, mode uint32) (*os.File, error) {
	at, err := p.dir()
	if err != nil {
		return nil, err
	}
	fd, err := openat(at, p.name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, p.failed("open", err)
	}
	return os.NewFile(uintptr(fd), p.host()), nil
}

// stat returns the state of what has the name, a link's own if it is one.
func (p *place) stat() (unix.Stat_t, error) {
	var stat unix.Stat_t
	at, err := p.dir()
	if err != nil {
		return stat, err
	}
	if err := unix.Fstatat(at, p.name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return stat, p.failed("stat", err)
	}
	return stat, nil
}
