package gate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const othersWrite = 0o022

// guarded returns an error if others than root, or than whom this runs as, own what info is about, or can change it. In a directory with a
// sticky bit nobody can exchange what is somebody else's.
func guarded(name string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("the owner of %s is not known", name)
	}
	if uid := int(stat.Uid); uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, and must belong to root", name, uid)
	}
	sticky := info.IsDir() && info.Mode()&fs.ModeSticky != 0
	link := info.Mode()&fs.ModeSymlink != 0 // its mode says nothing: whoever may write the directory can exchange it
	if info.Mode().Perm()&othersWrite != 0 && !sticky && !link {
		return fmt.Errorf("%s has the mode %04o, and nobody but root may write it", name, info.Mode().Perm())
	}
	return nil
}

// maxLinks is how many symbolic links a path may lead through, as in the kernel.
const maxLinks = 40

// openDir opens a directory of which, and of all on the way to it, nobody but root can exchange anything. Links of root's are followed. With
// create, what is missing is made.
func openDir(path string, create bool) (*os.Root, error) {
	for range maxLinks {
		dir, link, err := walk(path, create)
		if err != nil || link == "" {
			return dir, err
		}
		path = link
	}
	return nil, fmt.Errorf("%s leads through too many symbolic links", path)
}

// walk goes down from the root. At a link it returns where the path leads by way of it.
func walk(path string, create bool) (_ *os.Root, link string, err error) {
	at, err := os.OpenRoot("/")
	if err != nil {
		return nil, "", err
	}
	walked, names := "/", strings.Split(strings.Trim(filepath.Clean(path), "/"), "/")
	for i, name := range names {
		here := walked
		walked = filepath.Join(walked, name)
		if info, err := at.Lstat(name); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			target, err := follow(at, name, walked, info)
			_ = at.Close()
			if !filepath.IsAbs(target) {
				target = filepath.Join(here, target)
			}
			return nil, filepath.Join(append([]string{target}, names[i+1:]...)...), err
		}
		next, err := step(at, name, walked, create)
		_ = at.Close()
		if err != nil {
			return nil, "", err
		}
		at = next
	}
	return at, "", nil
}

// follow returns where a link of root's leads.
func follow(at *os.Root, name, path string, info fs.FileInfo) (string, error) {
	if err := guarded(path, info); err != nil {
		return "", err
	}
	return at.Readlink(name)
}

// step opens a directory in another. It follows no link.
func step(at *os.Root, name, path string, create bool) (*os.Root, error) {
	info, err := at.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) && create {
		if err := at.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		info, err = at.Lstat(name)
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", path)
	}
	if err := guarded(path, info); err != nil {
		return nil, err
	}
	next, err := at.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	opened, err := next.Stat(".")
	if err != nil || !os.SameFile(info, opened) {
		_ = next.Close()
		return nil, errors.Join(err, fmt.Errorf("%s was exchanged while it was opened", path))
	}
	return next, nil
}

// open opens a regular file that nobody but root can write.
func open(dir *os.Root, name string) (*os.File, error) {
	info, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir.Name(), name)
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if err := guarded(path, info); err != nil {
		return nil, err
	}
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err != nil || !os.SameFile(info, opened) {
		_ = f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s was exchanged while it was opened", path))
	}
	return f, nil
}

// read reads a small file that nobody but root can write.
func read(dir *os.Root, name string, most int64) ([]byte, error) {
	f, err := open(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", name, most)
	}
	return data, err
}
