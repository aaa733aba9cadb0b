package host

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links a path may lead through, as in the kernel.
const maxLinks = 40

// Root finds a node's paths below a directory. Symbolic links are followed as on the node, where that directory is "/",
// so none leads out of it. Those that belong neither to root nor to whom the agent runs as are not followed: who may make a link
// in a directory of his own must not have the agent write, or read, wherever that leads.
type Root struct {
	Dir string
	// Private is the agent's own directory, which no resource may reach. Empty: not known yet.
	Private string
}

// Resolve returns where the file at p really is. The last component, and more, may be missing.
func (r Root) Resolve(p string) (string, error) {
	at, links := "/", 0
	for rest := strings.Split(p, "/"); len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, name)
		target, err := os.Readlink(filepath.Join(r.Dir, next))
		if err != nil { // not a link, or nothing at all
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s leads through too many symbolic links", p)
		}
		if err := r.trusted(next); err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	host := filepath.Join(r.Dir, at)
	if r.Private != "" && (host == r.Private || strings.HasPrefix(host, r.Private+"/")) {
		return "", fmt.Errorf("%s belongs to the agent itself", p)
	}
	return host, nil
}

// trusted returns an error if a symbolic link is not to be followed.
func (r Root) trusted(link string) error {
	info, err := os.Lstat(filepath.Join(r.Dir, link))
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("the owner of %s can't be told", link)
	}
	if uid := int(stat.Uid); uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("%s is a symbolic link of user %d, which is not followed: it could lead anywhere on the node; remove it there, or have "+
			"it belong to root", link, uid)
	}
	return nil
}

// Find returns the first of the paths that is there, or "".
func (r Root) Find(paths ...string) string {
	for _, p := range paths {
		host, err := r.Resolve(p)
		if err != nil {
			continue
		}
		if info, err := os.Stat(host); err == nil && info.Mode().IsRegular() {
			return host
		}
	}
	return ""
}
