package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// listOfStranger gives user 4711 all access, and the group none; see linux/posix_acl_xattr.h.
const listOfStranger = "\x02\x00\x00\x00" +
	"\x01\x00\x07\x00\xff\xff\xff\xff" + // the owner
	"\x02\x00\x07\x00\x67\x12\x00\x00" + // user 4711
	"\x04\x00\x00\x00\xff\xff\xff\xff" + // the group
	"\x10\x00\x07\x00\xff\xff\xff\xff" + // the mask
	"\x20\x00\x00\x00\xff\xff\xff\xff" // others

func setACL(t *testing.T, p, which string) {
	t.Helper()
	err := unix.Setxattr(p, which, []byte(listOfStranger), 0)
	if errors.Is(err, unix.ENOTSUP) {
		t.Skip("the file system of the temporary directory has no access control lists; set TMPDIR to one on ext4, xfs or btrfs")
	}
	require.NoError(t, err)
}

func TestNobodyHasMoreAccessToANewFileThanByItsMode(t *testing.T) {
	dir := t.TempDir()
	setACL(t, dir, "system.posix_acl_default")
	h := Host{Root: Root{Dir: dir}}
	require.NoError(t, h.WriteFile("/secret", []byte("x"), State{Mode: 0o660, UID: KeepOwner, GID: KeepOwner}))
	_, err := unix.Getxattr(filepath.Join(dir, "secret"), accessACL, nil)
	require.ErrorIs(t, err, unix.ENODATA)
	info, err := os.Stat(filepath.Join(dir, "secret"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), info.Mode())
}

func TestCheckACL(t *testing.T) {
	dir := t.TempDir()
	root := Root{Dir: dir}
	require.NoError(t, root.CheckACL("/a"), "it is not there")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	require.NoError(t, root.CheckACL("/a"))
	setACL(t, filepath.Join(dir, "a"), accessACL)
	require.ErrorContains(t, root.CheckACL("/a"), "setfacl -b /a")
}
