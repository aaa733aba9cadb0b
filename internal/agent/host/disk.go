package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
)

// Temporary files are beside what they will replace. Programs that read whole directories skip names that begin with a
// dot or end in something strange, and the agent knows its own by both.
const tempPattern = ".refit-*.tmp"

// TempForm matches the names of those files.
var TempForm = regexp.MustCompile(`^\.refit-[0-9]+\.tmp$`)

// KeepOwner as a uid or gid leaves a file to whoever creates it.
const KeepOwner = -1

// Disk writes so that after a loss of power either the old or the new is there.
type Disk struct {
	NoSync bool
}

// Write puts what r returns at target. Readers see the old file or the new one, with its mode and owner, never a part.
func (d Disk) Write(target string, r io.Reader, want State) (err error) {
	dir := filepath.Dir(target)
	if err := d.Mkdirs(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, tempPattern) // 0600: nobody reads it before it has its owner
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := io.Copy(f, r); err != nil {
		return fmt.Errorf("write %s: %w", target, err)
	}
	if err := f.Chown(want.UID, want.GID); err != nil {
		return err
	}
	// After the owner, because a change of owner clears the set-uid bit.
	if err := syscall.Fchmod(int(f.Fd()), want.Mode&ModeMask); err != nil {
		return fmt.Errorf("chmod %s: %w", target, err)
	}
	if err := d.sync(f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), target); err != nil {
		return err
	}
	return d.syncDir(dir)
}

// Remove deletes target. That it is gone already is fine.
func (d Disk) Remove(target string) error {
	if err := os.Remove(target); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return d.syncDir(filepath.Dir(target))
}

// Mkdirs makes dir and what is missing above it, whatever the umask says.
func (d Disk) Mkdirs(dir string, mode fs.FileMode) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("%s is not a directory", dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := d.Mkdirs(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(dir, mode); err != nil {
		return err
	}
	return d.syncDir(filepath.Dir(dir))
}

// Sweep removes the temporary files that a run which died has left in dir.
func (d Disk) Sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // nothing to sweep; what matters about the directory fails the step that needs it
	}
	for _, e := range entries {
		if e.Type().IsRegular() && TempForm.MatchString(e.Name()) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

func (d Disk) sync(f *os.File) error {
	if d.NoSync {
		return nil
	}
	return f.Sync()
}

func (d Disk) syncDir(dir string) error {
	if d.NoSync {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
