package host

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// accessACL is where the kernel keeps a list that gives further users and groups access to a file; see acl(5). The bits of the group in the
// file's mode are then the most that the list gives to anyone but the owner, and not what the group may do.
const accessACL = "system.posix_acl_access"

const (
	// selinuxLabel is where the kernel keeps the label of a file.
	selinuxLabel = "security.selinux"
	// capabilities are those of a program; see capabilities(7).
	capabilities = "security.capability"
)

// Extended are a file's extended attributes, by name, as far as they go with it: those of users and of root's programs, the capabilities of
// a program, its access control list, and its label. Hashes and signatures of the content (security.ima and .evm) don't. Nil: they are
// not known.
type Extended map[string][]byte

// goes reports whether an attribute goes with its file. Those of overlayfs are about the layer that a file is in.
func goes(name string) bool {
	if strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.") {
		return false
	}
	return name == accessACL || name == selinuxLabel || name == capabilities ||
		strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "trusted.")
}

// ExtendedOf returns the attributes of an open file that go with it. A file system without any has none.
func ExtendedOf(f *os.File) (Extended, error) {
	fd := int(f.Fd())
	names, err := attribute(func(buf []byte) (int, error) { return unix.Flistxattr(fd, buf) })
	if err != nil {
		return nil, fmt.Errorf("list the extended attributes of %s: %w", f.Name(), err)
	}
	x := Extended{}
	for _, name := range strings.Split(strings.TrimRight(string(names), "\x00"), "\x00") {
		if !goes(name) {
			continue
		}
		value, err := attribute(func(buf []byte) (int, error) { return unix.Fgetxattr(fd, name, buf) })
		switch {
		case errors.Is(err, unix.ENODATA): // since a moment ago
		case err != nil:
			return nil, fmt.Errorf("read the extended attribute %s of %s: %w", name, f.Name(), err)
		default:
			x[name] = value
		}
	}
	return x, nil
}

// attribute reads what has a size that is to be asked for, and that can grow meanwhile.
func attribute(read func(buf []byte) (int, error)) ([]byte, error) {
	for {
		size, err := read(nil)
		if size == 0 || err != nil {
			if errors.Is(err, unix.ENOTSUP) {
				err = nil
			}
			return []byte{}, err
		}
		buf := make([]byte, size)
		n, err := read(buf)
		if !errors.Is(err, unix.ERANGE) {
			return buf[:max(n, 0)], err
		}
	}
}

// give gives a new file its attributes, of which a list gives no more than the mode. Its label is another matter.
func (x Extended) give(f *os.File, mode uint32) error {
	for _, name := range slices.Sorted(maps.Keys(x)) {
		value := x[name]
		switch {
		case name == selinuxLabel || !goes(name):
			continue
		case name == accessACL:
			value = within(value, mode)
		}
		if err := unix.Fsetxattr(int(f.Fd()), name, value, 0); err != nil {
			return fmt.Errorf("set the extended attribute %s: %w", name, err)
		}
	}
	return nil
}

// inherited returns the attributes of the file that a new one replaces.
func (p *place) inherited(to *os.File) (Extended, error) {
	if stat, err := p.stat(); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, nil //nolint:nilerr // what is no file has none that stay, and the rename tells what else is wrong
	}
	f, _, err := p.openRegular(p.host())
	if err != nil || f == nil {
		return nil, err
	}
	defer f.Close()
	return passedOn(f, to)
}

// passedOn returns the attributes of a file that go to one that replaces it. As with chown(2), capabilities don't go to another owner's, and
// neither does a list: who owns a file can give others access to it, and would have given it to what is not theirs.
func passedOn(from, to *os.File) (Extended, error) {
	x, err := ExtendedOf(from)
	if err != nil {
		return nil, err
	}
	var was, is unix.Stat_t
	if err := errors.Join(unix.Fstat(int(from.Fd()), &was), unix.Fstat(int(to.Fd()), &is)); err != nil {
		return nil, fmt.Errorf("stat %s: %w", from.Name(), err)
	}
	if was.Uid != is.Uid {
		delete(x, capabilities)
		delete(x, accessACL)
	}
	return x, nil
}

// complete gives a new file what it has beside content, owner and mode: the attributes that are given, or else those of the file that it
// replaces, and its label. A list that it has from its directory goes.
func (p *place) complete(f *os.File, x Extended, mode uint32) (err error) {
	if x == nil {
		if x, err = p.inherited(f); err != nil {
			return err
		}
	}
	if err := errors.Join(dropACL(f), x.give(f, mode)); err != nil {
		return err
	}
	return p.labels.give(f, regularFile, p.at(), x)
}

// Complete gives a new file or directory that a caller has made by itself what it is to have at p beside content, owner and mode: the
// extended attributes of the file that it replaces, if that is not nil, and the label that the node's SELinux policy has for the path. Owner
// and mode are its own already.
func (r Root) Complete(f, replaced *os.File, p string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	x, kind := Extended(nil), directoryFile
	if !info.IsDir() {
		kind = regularFile
		if replaced != nil {
			if x, err = passedOn(replaced, f); err != nil {
				return err
			}
		}
		if err := errors.Join(dropACL(f), x.give(f, uint32(info.Mode().Perm()))); err != nil {
			return err
		}
	}
	return r.labels().give(f, kind, p, x)
}
