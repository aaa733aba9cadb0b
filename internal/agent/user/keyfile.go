package user

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/capi-refit/refit/internal/agent/host"
)

const (
	keysDir  = ".ssh"
	keysName = "authorized_keys"
	// keysTemp has the form of the agent's temporary files. There is one writer, so one name is enough, and what a run that died
	// has left is in nobody's way.
	keysTemp = ".refit-0.tmp"
	// maxKeys bounds what is read of a file that its user can make as large as the disk.
	maxKeys      = 1 << 20
	keysMode     = 0o600
	keysDirMode  = 0o700
	othersMayTo  = 0o022
	noHomeAdvice = "make it, or give the user another home"
)

// keyFile is a user's authorized_keys, and the directory that it is in. Both belong to somebody who need not be trusted.
type keyFile struct {
	Content []byte     `json:"content,omitempty"`
	File    host.State `json:"file"`
	Dir     host.State `json:"dir"`
}

func stateOf(info fs.FileInfo) host.State {
	s := host.State{Exists: true}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		s.UID, s.GID, s.Mode = int(stat.Uid), int(stat.Gid), stat.Mode&host.ModeMask
	}
	return s
}

// readKeyFile reads the keys of an account. What must not be touched is a distrust error.
func (k *Kind) readKeyFile(a account) (keyFile, error) {
	h, err := k.openHome(a)
	if err != nil || h == nil {
		return keyFile{}, err
	}
	defer shut(h)
	dir, state, err := h.openDir()
	if err != nil || dir == nil {
		return keyFile{}, err
	}
	defer shut(dir)
	f := keyFile{Dir: state}
	f.Content, f.File, err = h.readFile(dir)
	return f, err
}

func (h *home) readFile(dir *os.Root) ([]byte, host.State, error) {
	p := path.Join(h.path, keysDir, keysName)
	info, err := dir.Lstat(keysName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, host.State{}, nil
	}
	if err != nil {
		return nil, host.State{}, err
	}
	if !info.Mode().IsRegular() { // opening a pipe or a device can block, or worse
		return nil, host.State{}, distrustf("%s is not a regular file; a link is not followed", p)
	}
	if err := h.checkOwner(dir, keysName, p); err != nil {
		return nil, host.State{}, err
	}
	f, err := dir.OpenFile(keysName, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, host.State{}, err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return nil, host.State{}, err
	}
	// Under another name it can be a file that its user may not read, and would get to read.
	if stat, ok := opened.Sys().(*syscall.Stat_t); !ok || !os.SameFile(info, opened) || stat.Nlink != 1 {
		return nil, host.State{}, distrustf("%s has a second name, or was exchanged while it was opened", p)
	}
	if opened.Size() > maxKeys {
		return nil, host.State{}, distrustf("%s is larger than %d bytes", p, maxKeys)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeys))
	return data, stateOf(opened), err
}

// writeKeyFile puts content where the keys of an account are, with the owner and the mode of state. Readers see the old file or the
// new one.
func (k *Kind) writeKeyFile(a account, content []byte, state host.State) error {
	h, err := k.openHome(a)
	if err != nil {
		return err
	}
	if h == nil {
		return fmt.Errorf("the home %s does not exist: %s", a.Home, noHomeAdvice)
	}
	defer shut(h)
	if err := h.makeDir(); err != nil {
		return err
	}
	dir, _, err := h.openDir()
	if err != nil {
		return err
	}
	defer shut(dir)
	if err := h.own(dir); err != nil {
		return err
	}
	if _, _, err := h.readFile(dir); err != nil { // what is replaced is a file that may be replaced
		return err
	}
	return h.write(dir, content, state)
}

func (h *home) write(dir *os.Root, content []byte, state host.State) (err error) {
	if err := dir.RemoveAll(keysTemp); err != nil {
		return err
	}
	f, err := dir.OpenFile(keysTemp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, keysMode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = dir.Remove(keysTemp)
		}
	}()
	if _, err := f.Write(content); err != nil {
		return fmt.Errorf("write %s: %w", path.Join(h.path, keysDir, keysName), err)
	}
	if err := f.Chown(state.UID, state.GID); err != nil {
		return err
	}
	if err := f.Chmod(os.FileMode(state.Mode & 0o777)); err != nil {
		return err
	}
	if err := h.complete(dir, f); err != nil {
		return err
	}
	if err := h.sync(f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := dir.Rename(keysTemp, keysName); err != nil {
		return err
	}
	return h.syncDir(dir)
}

// complete gives a new file of keys the extended attributes of the one that it replaces, and its label.
func (h *home) complete(dir *os.Root, f *os.File) error {
	replaced, err := dir.OpenFile(keysName, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return h.on.Complete(f, nil, path.Join(h.path, keysDir, keysName))
	}
	if err != nil {
		return err
	}
	defer shut(replaced)
	return h.on.Complete(f, replaced, path.Join(h.path, keysDir, keysName))
}

func (h *home) sync(f *os.File) error {
	if h.noSync {
		return nil
	}
	return f.Sync()
}

func (h *home) syncDir(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return h.sync(f)
}

// restoreKeyFile makes the keys what they were.
func (k *Kind) restoreKeyFile(a account, before keyFile) error {
	h, err := k.openHome(a)
	if err != nil || h == nil {
		return err // without a home there are no keys
	}
	defer shut(h)
	if before.File.Exists {
		if err := k.writeKeyFile(a, before.Content, before.File); err != nil {
			return err
		}
		return h.restoreDir(before.Dir)
	}
	if err := h.removeKeys(); err != nil {
		return err
	}
	if before.Dir.Exists {
		return h.restoreDir(before.Dir)
	}
	if err := h.Remove(keysDir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) { // not empty counts as that
		return err
	}
	return h.syncDir(h.Root)
}

func (h *home) removeKeys() error {
	dir, _, err := h.openDir()
	if err != nil || dir == nil {
		return err
	}
	defer shut(dir)
	for _, name := range []string{keysName, keysTemp} {
		if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// keysDiffer reports whether the keys are not what they have to be. sshd ignores keys that others than the user may write.
func (g goal) keysDiffer(v view) bool {
	if v.keysUnsafe != "" {
		return len(g.keys)+len(g.keysGone) > 0 || g.removed
	}
	if !showsKeys(string(v.keys.Content), g.keys, g.keysGone) {
		return true
	}
	if len(g.keys) == 0 {
		return false
	}
	f, dir := v.keys.File, v.keys.Dir
	return f.Mode != keysMode || f.UID != v.account.UID || dir.UID == v.account.UID && dir.Mode&othersMayTo != 0
}
