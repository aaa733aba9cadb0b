package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Root finds a node's paths below a directory. Symbolic links are followed as on the node, where that directory is "/",
// so none leads out of it. Those that belong neither to root nor to whom the agent runs as are not followed: who may make a link
// in a directory of his own must not have the agent write, or read, wherever that leads. Directories on the way are held open
// meanwhile, so that exchanging one changes nothing.
type Root struct {
	Dir string
	// Private is the agent's own directory, which no resource may reach. Empty: not known yet.
	Private string
}

// find returns the place of the file at p. follow reports whether a link in its place is followed.
func (r Root) find(p string, follow bool) (*place, error) {
	at, err := walk(r.Dir, p, follow)
	if err != nil {
		return nil, err
	}
	if r.Private != "" && below(at.host(), r.Private) {
		at.close()
		return nil, fmt.Errorf("%s belongs to the agent itself", p)
	}
	return at, nil
}

// Resolve returns where the file at p really is now. The last component, and more, may be missing. It tells one file from another, and is
// for people and for programs that are run; to open or to change a file by it would be to let others exchange a directory before.
func (r Root) Resolve(p string) (string, error) {
	at, err := r.find(p, true)
	if err != nil {
		return "", err
	}
	defer at.close()
	return at.host(), nil
}

// Find returns the first of the paths that is there as a file, or "".
func (r Root) Find(paths ...string) string {
	for _, p := range paths {
		if at, info, err := r.stat(p, true); err == nil && info.Mode().IsRegular() {
			return at
		}
	}
	return ""
}

func (r Root) stat(p string, follow bool) (at string, info Info, err error) {
	found, err := r.find(p, follow)
	if err != nil {
		return "", Info{}, err
	}
	defer found.close()
	info, err = found.info()
	return found.host(), info, err
}

// Stat returns what is at p, through symbolic links.
func (r Root) Stat(p string) (Info, error) {
	_, info, err := r.stat(p, true)
	return info, err
}

// Lstat returns what is at p. A link in its place is not followed.
func (r Root) Lstat(p string) (Info, error) {
	_, info, err := r.stat(p, false)
	return info, err
}

// Readlink returns where the link at p leads.
func (r Root) Readlink(p string) (string, error) {
	at, err := r.find(p, false)
	if err != nil {
		return "", err
	}
	defer at.close()
	return at.readlink()
}

// ReadDir returns what is in the directory at p, sorted by name.
func (r Root) ReadDir(p string) ([]Info, error) {
	at, err := r.find(p, true)
	if err != nil {
		return nil, err
	}
	defer at.close()
	return at.entries()
}

// Size returns how many bytes the regular files at and below p have. What goes meanwhile does not count.
func (r Root) Size(p string) (uint64, error) {
	at, err := r.find(p, true)
	if err != nil {
		return 0, err
	}
	defer at.close()
	return at.size()
}

// Space returns that of the file system that p is on, or would be if it were made.
func (r Root) Space(p string) (Space, error) {
	at, err := r.find(p, true)
	if err != nil {
		return Space{}, err
	}
	defer at.close()
	return at.space()
}

// OpenDir opens the directory at p, through symbolic links. What is done in it is done there, and not where a link in it leads out of it.
// One that is not there is nil.
func (r Root) OpenDir(p string) (*os.Root, error) {
	at, err := r.find(p, true)
	if err != nil {
		return nil, err
	}
	defer at.close()
	f, err := at.open(forDir, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", f.Fd())) // that very directory, whatever its path leads to by now
}
