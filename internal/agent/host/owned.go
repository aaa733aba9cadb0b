package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// NotOwnedError says that others than root, or than whom the agent runs as, can change something that the agent has to trust.
type NotOwnedError struct {
	// Path of the file or directory.
	Path string
	// UID of its owner.
	UID int
	// Mode are its permissions.
	Mode uint32
}

// Error says whose it is, and what to do about it.
func (e *NotOwnedError) Error() string {
	return fmt.Sprintf("%s belongs to user %d and has mode %04o, so others than root can change what refit keeps, and runs as root; nothing was "+
		"used. Look at what they have changed, then make it root's alone: chown root:root %s && chmod go-w %s", e.Path, e.UID, e.Mode, e.Path, e.Path)
}

func notOwned(p string, stat unix.Stat_t) error {
	return &NotOwnedError{Path: p, UID: int(stat.Uid), Mode: stat.Mode & ModeMask}
}

// ours reports whether a user is root or whom the agent runs as.
func ours(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// shared reports whether others than the owner may write. A list of access rights that lets them do so shows in the bits of the group. The
// group of whom the agent runs as, if that is not root as in tests, counts as the owner.
func shared(stat unix.Stat_t) bool {
	group := stat.Mode&0o020 != 0 && (os.Geteuid() == 0 || int(stat.Gid) != os.Getegid())
	return group || stat.Mode&0o002 != 0
}

// CheckOwned returns a NotOwnedError unless p, and each directory on the way to it from the root of the node, belongs to root or to whom the
// agent runs as, and nobody else can write there. A directory on the way may let others write if it is sticky, since what is root's in it
// can't be exchanged by them. What is not there is fine.
func (r Root) CheckOwned(p string) error {
	at, err := walker{place: place{base: r.Dir}, follow: true, owned: true}.walk(p)
	if err != nil {
		return err
	}
	defer at.close()
	stat, err := at.stat()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return at.checkOwned(stat)
}

// CheckEntriesOwned is CheckOwned for what is directly in a directory. A link has to be root's, wherever it leads.
func (r Root) CheckEntriesOwned(p string) error {
	at, err := r.find(p, true)
	if err != nil {
		return err
	}
	defer at.close()
	entries, err := at.entries()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if !ours(e.stat.Uid) || e.Mode().Type() != fs.ModeSymlink && shared(e.stat) {
			return notOwned(filepath.Join(at.host(), e.name), e.stat)
		}
	}
	return nil
}

func (p *place) checkOwned(stat unix.Stat_t) error {
	if !ours(stat.Uid) || shared(stat) {
		return notOwned(p.host(), stat)
	}
	return nil
}
