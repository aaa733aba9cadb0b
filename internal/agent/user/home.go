package user

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/capi-refit/refit/internal/agent/host"
)

// distrust is a reason not to touch what is in a home: what is there leads elsewhere, or belongs to somebody else.
type distrust struct{ reason string }

func (d distrust) Error() string { return d.reason }

func distrustf(format string, args ...any) error { return distrust{fmt.Sprintf(format, args...)} }

// home is the home of an account, opened. Nothing in it leads out of it, whatever its user does to it meanwhile.
type home struct {
	*os.Root
	path string
	// uid and gid are the account's, root is the number of root.
	uid, gid, root int
	noSync         bool
	// on labels what is made in it.
	on host.Root
}

// hasHome reports whether the account has a home of its own, by its entry in /etc/passwd.
func (a account) hasHome() bool { return path.IsAbs(a.Home) && path.Clean(a.Home) != "/" }

// openHome opens the home of an account. One that is not there is nil.
func (k *Kind) openHome(a account) (*home, error) {
	if !a.hasHome() {
		return nil, nil
	}
	owners, err := host.LoadOwners(k.host.Root)
	if err != nil {
		return nil, err
	}
	root, _, err := owners.Resolve("root:root")
	if err != nil {
		return nil, err
	}
	r, err := k.host.OpenDir(a.Home)
	if unopened := (*fs.PathError)(nil); errors.As(err, &unopened) {
		return nil, distrustf("%s is not a directory that can be opened", a.Home)
	}
	if err != nil {
		return nil, distrustf("%v", err)
	}
	if r == nil {
		return nil, nil
	}
	h := &home{Root: r, path: a.Home, uid: a.UID, gid: a.GID, root: root, noSync: k.host.Disk.NoSync, on: k.host.Root}
	if err := h.checkOwner(r, ".", a.Home); err != nil {
		_ = r.Close()
		return nil, err
	}
	return h, nil
}

// shut closes what was read, or has been synced.
func shut(c io.Closer) { _ = c.Close() }

func (h *home) checkOwner(r *os.Root, name, p string) error {
	info, err := r.Lstat(name)
	if err != nil {
		return err
	}
	if uid, _ := ownerOf(info); uid != h.uid && uid != h.root {
		return distrustf("%s belongs neither to the user nor to root", p)
	}
	return nil
}

// openDir opens the directory of the keys. One that is not there is nil. A link is not followed: root would write where it leads.
func (h *home) openDir() (*os.Root, host.State, error) {
	p := path.Join(h.path, keysDir)
	info, err := h.Lstat(keysDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, host.State{}, nil
	}
	if err != nil {
		return nil, host.State{}, err
	}
	if !info.IsDir() {
		return nil, host.State{}, distrustf("%s is not a directory, or a link to one, which is not followed", p)
	}
	if err := h.checkOwner(h.Root, keysDir, p); err != nil {
		return nil, host.State{}, err
	}
	dir, err := h.OpenRoot(keysDir)
	if err != nil {
		return nil, host.State{}, err
	}
	opened, err := dir.Stat(".")
	if err == nil && !os.SameFile(info, opened) {
		err = distrustf("%s was exchanged while it was opened", p)
	}
	if err != nil {
		_ = dir.Close()
		return nil, host.State{}, err
	}
	return dir, stateOf(opened), nil
}

func (h *home) makeDir() error {
	if err := h.Mkdir(keysDir, keysDirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// own makes a directory the user's that has just been made, and closes one of the user's to others, as sshd demands. One of root's
// with something in it is root's on purpose.
func (h *home) own(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	uid, _ := ownerOf(info)
	if uid != h.uid {
		if names, err := f.Readdirnames(1); !errors.Is(err, io.EOF) || len(names) > 0 {
			return nil
		}
		if err := f.Chown(h.uid, h.gid); err != nil {
			return err
		}
		if err := h.on.Complete(f, nil, path.Join(h.path, keysDir)); err != nil {
			return err
		}
	}
	return f.Chmod(keysDirMode)
}

// restoreDir puts back owner and mode of the directory. One of root's was left as it is, or has come there since: the user can give the
// name to any directory in the home, one that only root can look into for example.
func (h *home) restoreDir(before host.State) error {
	dir, now, err := h.openDir()
	if err != nil || dir == nil {
		return err
	}
	defer shut(dir)
	if now.UID != h.uid {
		return nil
	}
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	if now.UID != before.UID || now.GID != before.GID {
		if err := f.Chown(before.UID, before.GID); err != nil {
			return err
		}
	}
	return f.Chmod(os.FileMode(before.Mode & 0o777))
}
