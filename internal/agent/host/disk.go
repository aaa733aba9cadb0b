package host

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// KeepOwner as a uid or gid leaves a file to whoever creates it.
const KeepOwner = -1

// Disk changes files so that after a loss of power either the old or the new is there. It is for the agent's own files: paths are those of
// the machine that the agent runs on, and what others can change is not read. Its directories are held open and links looked at as
// Root does.
type Disk struct {
	NoSync bool

	// synced, if not nil, is told of each directory that was synced.
	synced func(fd int)
}

// find returns the place of a path. What names a file is not followed if it is a link.
func (d Disk) find(target string) (*place, error) { return walk("/", target, false) }

// Write puts what r returns at target. Readers see the old file or the new one, with its mode and owner, never a part.
func (d Disk) Write(target string, r io.Reader, want State) error {
	at, err := d.find(target)
	if err != nil {
		return err
	}
	defer at.close()
	return at.write(d, r, want, nil)
}

// WriteFile puts content at target, for nobody else to read.
func (d Disk) WriteFile(target string, content []byte) error {
	return d.Write(target, bytes.NewReader(content), State{UID: KeepOwner, GID: KeepOwner, Mode: 0o600})
}

// Open opens a regular file.
func (d Disk) Open(name string) (*os.File, error) {
	at, err := d.find(name)
	if err != nil {
		return nil, err
	}
	defer at.close()
	f, _, err := at.read(name)
	return f, err
}

// ReadFile reads a regular file that nobody else can have changed, or else it returns a NotOwnedError.
func (d Disk) ReadFile(name string) ([]byte, error) {
	f, err := d.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// OpenFile opens, or makes, a regular file that nobody else can have changed, or else it returns a NotOwnedError. A link is not followed.
func (d Disk) OpenFile(name string, flags int, mode fs.FileMode) (*os.File, error) {
	at, err := d.find(name)
	if err != nil {
		return nil, err
	}
	defer at.close()
	f, err := at.open(flags&^os.O_TRUNC|unix.O_NONBLOCK, uint32(mode.Perm()))
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &stat); err == nil {
		err = at.checkOwned(stat)
	}
	if err == nil && stat.Mode&unix.S_IFMT != unix.S_IFREG {
		err = at.failed("open", errors.New("it is not a regular file"))
	}
	if err == nil && flags&os.O_TRUNC != 0 {
		err = f.Truncate(0)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Lstat returns what is at name. A link in its place is not followed.
func (d Disk) Lstat(name string) (Info, error) { return Root{Dir: "/"}.Lstat(name) }

// ReadDir returns what is in a directory, sorted by name.
func (d Disk) ReadDir(dir string) ([]Info, error) { return Root{Dir: "/"}.ReadDir(dir) }

// Remove deletes target. That it is gone already is fine.
func (d Disk) Remove(target string) error {
	at, err := d.find(target)
	if err != nil {
		return err
	}
	defer at.close()
	return at.remove(d)
}

// RemoveAll deletes target and all below it. It follows no link.
func (d Disk) RemoveAll(target string) error {
	return Host{Root: Root{Dir: "/"}, Disk: d}.RemoveAll(target)
}

// Rename gives a file another name, in the place of what has it.
func (d Disk) Rename(from, to string) error {
	was, err := d.find(from)
	if err != nil {
		return err
	}
	defer was.close()
	is, err := d.find(to)
	if err != nil {
		return err
	}
	defer is.close()
	return was.rename(d, is)
}

// Link puts a symbolic link at name, in the place of what is there.
func (d Disk) Link(target, name string) error {
	return Host{Root: Root{Dir: "/"}, Disk: d}.Link(target, name)
}

// Mkdirs makes dir and what is missing above it.
func (d Disk) Mkdirs(dir string, mode fs.FileMode) error {
	at, err := walk("/", dir, true)
	if err != nil {
		return err
	}
	defer at.close()
	return at.makeDir(d, uint32(mode.Perm()))
}

// MakePrivate lets nobody but its owner look into a directory.
func (d Disk) MakePrivate(dir string) error {
	at, err := walk("/", dir, true)
	if err != nil {
		return err
	}
	defer at.close()
	f, err := at.open(forDir, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fchmod(int(f.Fd()), 0o700)
}

// Sweep removes the temporary files that a run which died has left in dir.
func (d Disk) Sweep(dir string) {
	at, err := walk("/", dir, true)
	if err != nil {
		return
	}
	defer at.close()
	at.sweep()
}

func (d Disk) sync(f *os.File) error {
	if d.NoSync {
		return nil
	}
	return f.Sync()
}

// syncFD syncs a directory that is held open, by O_PATH perhaps.
func (d Disk) syncFD(at int) error {
	if d.NoSync {
		return nil
	}
	fd, err := openat(at, ".", forDir, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Fsync(fd); err != nil {
		return err
	}
	if d.synced != nil {
		d.synced(fd)
	}
	return nil
}

// Size returns how many bytes the regular files at and below name have. What goes meanwhile does not count.
func (d Disk) Size(name string) (uint64, error) { return Root{Dir: "/"}.Size(name) }

// CreateTemp makes a temporary file in a directory, for nobody else to read, under a name that Sweep knows.
func (d Disk) CreateTemp(dir string) (*os.File, error) {
	at, err := d.find(filepath.Join(dir, tempName()))
	if err != nil {
		return nil, err
	}
	defer at.close()
	return at.open(os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// Observe returns what is at name, which is not followed if it is a link.
func (d Disk) Observe(name string) (State, error) {
	at, err := d.find(name)
	if err != nil {
		return State{}, err
	}
	defer at.close()
	return at.observe(name)
}
