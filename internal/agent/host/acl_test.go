package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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

// TestAListStaysWithinTheMode has the mode that the specs want be the most that the list gives, as with chmod.
func TestAListStaysWithinTheMode(t *testing.T) {
	dir := t.TempDir()
	h := Host{Root: Root{Dir: dir}}
	p := filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(p, []byte("old"), 0o600))
	setACL(t, p, accessACL)
	require.NoError(t, h.WriteFile("/a", []byte("new"), State{Mode: 0o640, UID: os.Getuid(), GID: os.Getgid()}))
	info, err := os.Stat(p)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode())
	list := make([]byte, len(listOfStranger))
	_, err = unix.Getxattr(p, accessACL, list)
	require.NoError(t, err)
	want := strings.Replace(listOfStranger, "\x10\x00\x07", "\x10\x00\x04", 1)
	want = strings.Replace(want, "\x01\x00\x07", "\x01\x00\x06", 1)
	require.Equal(t, want, string(list), "the mask is the group's bits, and the group itself has as little as before")
}

func TestAListIsMadeForAMode(t *testing.T) {
	perms := func(list []byte) (all []byte) {
		for at := 4; at < len(list); at += 8 {
			all = append(all, list[at+2])
		}
		return all
	}
	require.Equal(t, []byte{6, 7, 0, 4, 1}, perms(within([]byte(listOfStranger), 0o641)), "owner, user 4711, group, mask, others")
	require.Equal(t, []byte{6, 7, 0, 0, 0}, perms(within([]byte(listOfStranger), 0o600)))
	plain := "\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff\x04\x00\x07\x00\xff\xff\xff\xff\x20\x00\x07\x00\xff\xff\xff\xff"
	require.Equal(t, []byte{6, 4, 0}, perms(within([]byte(plain), 0o640)), "without a mask the group's are")
	require.Equal(t, "\x02\x00", string(within([]byte("\x02\x00"), 0o600)), "what is no list stays as it is")
}

func TestCheckACL(t *testing.T) {
	dir := t.TempDir()
	root := Root{Dir: dir}
	uid := os.Getuid()
	require.NoError(t, root.CheckACL("/a", uid), "it is not there")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	require.NoError(t, root.CheckACL("/a", uid+1))
	setACL(t, filepath.Join(dir, "a"), accessACL)
	require.NoError(t, root.CheckACL("/a", uid))
	require.ErrorContains(t, root.CheckACL("/a", uid+1), "setfacl -b /a")
	require.ErrorContains(t, root.CheckACL("/a", KeepOwner), "setfacl -b /a", "whose it will be is not known")
}
