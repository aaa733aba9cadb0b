package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// CheckACL returns an error if the file at p has an access control list and is to belong to another user, with that number. A list stays
// with a file that is replaced, and its mode is then the most that the list gives, as with chmod(1). But whoever owns a file can write
// that list, and would give others access to what is no longer theirs; and without it the group could do more than before. A file that is
// not there has none.
func (r Root) CheckACL(p string, uid int) error {
	f, state, err := r.Open(p)
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
	case state.UID == uid:
		return nil
	}
	return fmt.Errorf("%s has an access control list on the node, of user %d, and is to belong to another one, so it is not known whether the list "+
		"is to stay; remove it (setfacl -b %s; then look at the mode of the file), or take the file out of the specs", p, state.UID, p)
}

// hasNoACL reports whether that is what the kernel says. A file system without such lists has none.
func hasNoACL(err error) bool {
	return errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP)
}

// within returns a list as chmod(1) makes it for a mode: what the mode gives the owner, the others, and the group at most. Until a new file has
// its mode nobody may open it by the list that an older mode has gone with. The form is that of linux/posix_acl_xattr.h.
func within(list []byte, mode uint32) []byte {
	const (
		header, size                 = 4, 8
		owner, group, mask, everyone = 0x01, 0x04, 0x10, 0x20
	)
	list = slices.Clone(list)
	bits, bound := map[uint16]uint32{owner: mode >> 6, everyone: mode}, uint16(group)
	for at := header; at+size <= len(list); at += size {
		if binary.LittleEndian.Uint16(list[at:]) == mask {
			bound = mask
		}
	}
	bits[bound] = mode >> 3
	for at := header; at+size <= len(list); at += size {
		if by, ok := bits[binary.LittleEndian.Uint16(list[at:])]; ok {
			binary.LittleEndian.PutUint16(list[at+2:], uint16(by&0o7))
		}
	}
	return list
}

// dropACL removes from a new file the access control list that it has from its directory, so that nobody has more access than by its mode.
func dropACL(f *os.File) error {
	if err := unix.Fremovexattr(int(f.Fd()), accessACL); err != nil && !hasNoACL(err) {
		return fmt.Errorf("remove the access control list that %s has from its directory: %w", f.Name(), err)
	}
	return nil
}
