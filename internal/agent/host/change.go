package host

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// Temporary files are beside what they will replace. Programs that read whole directories skip names that begin with a
// dot or end in something strange, and the agent knows its own by both.
const tempPrefix, tempSuffix = ".refit-", ".tmp"

// linkTemp is what a link is called before it takes the place of another one.
const linkTemp = ".refit-link.tmp"

// TempForm matches the names of those files.
var TempForm = regexp.MustCompile(`^\.refit-[0-9]+\.tmp$`)

// tempName returns a name that nothing else has, as good as certainly.
func tempName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it does not fail
	return tempPrefix + strconv.FormatUint(binary.LittleEndian.Uint64(b[:]), 10) + tempSuffix
}

// write puts what r returns at the place. Owner and mode are given to a new file before it gets its name, never to what is there already,
// which can be a second name of any file; and so are its extended attributes. Nil: those of the file that it replaces.
func (p *place) write(d Disk, r io.Reader, want State, x Extended) (err error) {
	if err := p.makeMissing(d); err != nil {
		return err
	}
	at, err := p.dir()
	if err != nil {
		return err
	}
	temp := place{base: p.base, dirs: p.dirs, name: tempName()}
	f, err := temp.open(unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600) // nobody reads it before it has its owner
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = unix.Unlinkat(at, temp.name, 0)
		}
	}()
	if err := p.fill(f, r, want, x); err != nil {
		return err
	}
	if err := d.sync(f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := unix.Renameat(at, temp.name, at, p.name); err != nil {
		return p.failed("rename", err)
	}
	return p.syncDir(d)
}

// fill gives a new file all but its name.
func (p *place) fill(f *os.File, r io.Reader, want State, x Extended) error {
	if _, err := io.Copy(f, r); err != nil {
		return fmt.Errorf("write %s: %w", p.host(), err)
	}
	if err := f.Chown(want.UID, want.GID); err != nil {
		return err
	}
	if err := p.complete(f, x, want.Mode&ModeMask); err != nil { // after the content and the owner, of which a change clears capabilities
		return fmt.Errorf("write %s: %w", p.host(), err)
	}
	// After the owner, because a change of owner clears the set-uid bit.
	if err := unix.Fchmod(int(f.Fd()), want.Mode&ModeMask); err != nil {
		return fmt.Errorf("chmod %s: %w", p.host(), err)
	}
	return nil
}

// makeMissing makes the directories on the way that are not there, which everybody may look into.
func (p *place) makeMissing(d Disk) error {
	for len(p.missing) > 0 {
		if err := p.makeNext(d, p.missing[0], 0o755); err != nil {
			return err
		}
		p.missing = p.missing[1:]
	}
	return nil
}

// makeNext makes a directory in the deepest one that is there, and goes on into it. One that has come there meanwhile is taken as it is, but a
// link is not.
func (p *place) makeNext(d Disk, name string, mode uint32) error {
	at := p.dirs[len(p.dirs)-1].fd
	failed := func(err error) error {
		return (&place{base: p.base, dirs: p.dirs, name: name}).failed("mkdir", err)
	}
	made := unix.Mkdirat(at, name, mode)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return failed(made)
	}
	fd, err := openat(at, name, forDir, 0)
	if err != nil {
		return failed(err)
	}
	if made == nil {
		if err := errors.Join(despiteUmask(at, fd, mode), p.labelDir(fd, name), d.syncFD(at)); err != nil {
			_ = unix.Close(fd)
			return failed(err)
		}
	}
	p.dirs = append(p.dirs, dir{fd, name})
	return nil
}

// despiteUmask gives a directory that was just made its mode, if the umask has kept it from that. Where others can write to the directory
// that it is in, it may have been exchanged for another by now, and stays as it is. The agent's own umask takes nothing off that matters.
func despiteUmask(at, fd int, mode uint32) error {
	var in, made unix.Stat_t
	if err := errors.Join(unix.Fstat(at, &in), unix.Fstat(fd, &made)); err != nil {
		return err
	}
	if made.Mode&0o777 == mode || !ours(in.Uid) || shared(in) || !ours(made.Uid) {
		return nil
	}
	return unix.Fchmod(fd, made.Mode&ModeMask|mode)
}

// makeDir makes a directory at the place, and what is missing above it.
func (p *place) makeDir(d Disk, mode uint32) error {
	if err := p.makeMissing(d); err != nil {
		return err
	}
	stat, err := p.stat()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p.makeNext(d, p.name, mode)
	case err != nil:
		return err
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a directory", p.host())
	}
	return nil
}

// remove deletes the file that has the name, or the link, or a directory if it is empty. That it is gone already is fine.
func (p *place) remove(d Disk) error {
	at, err := p.dir()
	if err == nil {
		if err = unix.Unlinkat(at, p.name, 0); errors.Is(err, unix.EISDIR) {
			err = unix.Unlinkat(at, p.name, unix.AT_REMOVEDIR)
		}
		if err != nil {
			err = p.failed("remove", err)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return p.syncDir(d)
}

// removeAll deletes what has the name, and all below it. It follows no link.
func (p *place) removeAll() error {
	at, err := p.dir()
	if err == nil {
		err = removeTree(at, p.name)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return p.failed("remove", err)
}

func removeTree(at int, name string) error {
	err := unix.Unlinkat(at, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	fd, opened := openat(at, name, forDir, 0)
	if opened != nil {
		return err // why it could not be removed, which is no directory
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := removeTree(fd, n); err != nil {
			return err
		}
	}
	if err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// rename gives what has the name another one, in another directory perhaps.
func (p *place) rename(d Disk, to *place) error {
	from, err := p.dir()
	if err != nil {
		return err
	}
	into, err := to.dir()
	if err != nil {
		return err
	}
	if err := unix.Renameat(from, p.name, into, to.name); err != nil {
		return p.failed("rename", err)
	}
	return to.syncDir(d)
}

// link puts a symbolic link at the place, so that there is the old one or the new one at any time.
func (p *place) link(d Disk, target string) error {
	at, err := p.dir()
	if err != nil {
		return err
	}
	_ = unix.Unlinkat(at, linkTemp, 0) // of a run that died
	if err := unix.Symlinkat(target, at, linkTemp); err != nil {
		return p.failed("symlink", err)
	}
	if err := unix.Renameat(at, linkTemp, at, p.name); err != nil {
		_ = unix.Unlinkat(at, linkTemp, 0)
		return p.failed("rename", err)
	}
	return p.syncDir(d)
}

// sweep removes the temporary files that a run which died has left in the directory that has the name.
func (p *place) sweep() {
	f, err := p.open(forDir, 0)
	if err != nil {
		return // nothing to sweep; what matters about the directory fails the step that needs it
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	for _, name := range names {
		if TempForm.MatchString(name) {
			_ = unix.Unlinkat(int(f.Fd()), name, 0) // which leaves directories
		}
	}
}

// syncDir has the directory that the name is in survive a loss of power.
func (p *place) syncDir(d Disk) error {
	at, err := p.dir()
	if err != nil {
		return err
	}
	if err := d.syncFD(at); err != nil {
		return p.failed("sync", err)
	}
	return nil
}
