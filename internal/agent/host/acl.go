package host

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// accessACL is where the kernel keeps a list that gives further users and groups access to a file; see acl(5). The bits of the group in the
// file's mode are then the most that the list gives to anyone but the owner, and not what the group may do.
const accessACL = "system.posix_acl_access"

// CheckACL returns an error if the file at p has an access control list. A file that replaces it, or that is put back, has owner and mode
// alone, and by the mode the group could do more than before. A file that is not there has none.
func (r Root) CheckACL(p string) error {
	f, _, err := r.Open(p)
	if err != nil || f == nil {
		return err
	}
	defer f.Close()
	_, err = unix.Fgetxattr(int(f.Fd()), accessACL, nil)
	switch {
	case hasNoACL(err):
		return nil
	case err != nil:
		return fmt.Errorf("%s may have an access control list: %w", p, err)
	}
	return fmt.Errorf("%s has an access control list on the node, which would be lost, since only content, owner and mode of a file are kept; "+
		"remove it (setfacl -b %s; then look at the mode of the file), or take the file out of the specs", p, p)
}

// hasNoACL reports whether that is what the kernel says. A file system without such lists has none.
func hasNoACL(err error) bool {
	return errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP)
}

// dropACL removes from a new file the access control list that it has from its directory, so that nobody has more access than by its mode.
func dropACL(f *os.File) error {
	if err := unix.Fremovexattr(int(f.Fd()), accessACL); err != nil && !hasNoACL(err) {
		return fmt.Errorf("remove the access control list that %s has from its directory: %w", f.Name(), err)
	}
	return nil
}
