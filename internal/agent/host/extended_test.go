package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// netBind lets a program bind to low ports; see linux/capability.h.
const netBind = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// attributed makes a file with attributes, as far as whoever runs the test may set them: users' always, the others as root.
func attributed(t *testing.T, dir string) Extended {
	t.Helper()
	p := filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(p, []byte("old"), 0o600))
	set := Extended{}
	for attribute, value := range map[string]string{"user.note": "of a person", "trusted.note": "of root", capabilities: netBind} {
		err := unix.Setxattr(p, attribute, []byte(value), 0)
		if attribute == "user.note" && errors.Is(err, unix.ENOTSUP) {
			t.Skip("the file system of the temporary directory has no extended attributes; set TMPDIR to one on ext4, xfs or btrfs")
		}
		if attribute == "user.note" || os.Getuid() == 0 && !errors.Is(err, unix.EPERM) {
			require.NoError(t, err, attribute)
			set[attribute] = []byte(value)
		}
	}
	return set
}

func attributesOf(t *testing.T, dir string) Extended {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "a"))
	require.NoError(t, err)
	defer f.Close()
	x, err := ExtendedOf(f)
	require.NoError(t, err)
	delete(x, selinuxLabel) // where the machine has SELinux
	return x
}

func mine(mode uint32) State {
	return State{Exists: true, UID: os.Getuid(), GID: os.Getgid(), Mode: mode}
}

func TestExtendedAttributesStayWhenAFileIsReplaced(t *testing.T) {
	dir := t.TempDir()
	h := Host{Root: Root{Dir: dir}}
	set := attributed(t, dir)
	require.NoError(t, h.WriteFile("/a", []byte("new"), mine(0o644)))
	require.Equal(t, set, attributesOf(t, dir))
	data, err := os.ReadFile(filepath.Join(dir, "a"))
	require.NoError(t, err)
	require.Equal(t, "new", string(data))

	require.NoError(t, h.Disk.Write(filepath.Join(dir, "a"), openOf(t, dir), mine(0o600)))
	require.Equal(t, set, attributesOf(t, dir), "also of a file that is not found below the root of a node")
}

func openOf(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "a"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestPutBack(t *testing.T) {
	dir := t.TempDir()
	h := Host{Root: Root{Dir: dir}}
	set := attributed(t, dir)
	was, err := h.Save("/a")
	require.NoError(t, err)
	none, err := h.Save("/none")
	require.NoError(t, err)
	require.Equal(t, Saved{}, none)

	for name, spoil := range map[string]func() error{
		"replaced":  func() error { return h.WriteFile("/a", []byte("new"), mine(0o644)) },
		"removed":   func() error { return h.RemoveFile("/a") },
		"exchanged": func() error { return errors.Join(h.RemoveFile("/a"), h.WriteFile("/a", []byte("new"), mine(0o644))) },
	} {
		require.NoError(t, spoil(), name)
		require.NoError(t, h.PutBack("/a", was), name)
		same, err := h.IsAs("/a", was)
		require.NoError(t, err, name)
		require.True(t, same, name)
		require.Equal(t, set, attributesOf(t, dir), name)
	}

	require.NoError(t, h.WriteFile("/none", []byte("new"), mine(0o644)))
	require.NoError(t, h.PutBack("/none", none))
	require.NoFileExists(t, filepath.Join(dir, "none"))
}

// TestPutBackOfAnOlderAgent has what is there now count where nothing is known of what was.
func TestPutBackOfAnOlderAgent(t *testing.T) {
	for name, text := range map[string]string{"data": `"data":"b2xk"`, "content": `"content":"b2xk"`} {
		dir := t.TempDir()
		set := attributed(t, dir)
		var was Saved
		require.NoError(t, was.UnmarshalJSON([]byte(`{`+text+`,"state":{"exists":true,"uid":-1,"gid":-1,"mode":384}}`)), name)
		require.Equal(t, "old", string(was.Data), name)
		h := Host{Root: Root{Dir: dir}}
		require.NoError(t, h.WriteFile("/a", []byte("new"), mine(0o644)), name)
		require.NoError(t, h.PutBack("/a", was), name)
		require.Equal(t, set, attributesOf(t, dir), name)
	}
}

// TestWhatIsAnothersIsNotPassedOn has a user give a file of theirs a list and capabilities before it is replaced by one of root's.
func TestWhatIsAnothersIsNotPassedOn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can have files of others")
	}
	dir := t.TempDir()
	h := Host{Root: Root{Dir: dir}}
	p := filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(p, []byte("old"), 0o600))
	require.NoError(t, os.Chown(p, 4711, 4711))
	require.NoError(t, unix.Setxattr(p, "user.note", []byte("x"), 0))
	require.NoError(t, unix.Setxattr(p, capabilities, []byte(netBind), 0))
	setACL(t, p, accessACL)
	require.NoError(t, h.WriteFile("/a", []byte("secret"), mine(0o660)))
	require.Equal(t, Extended{"user.note": []byte("x")}, attributesOf(t, dir))
}

func TestAttributesThatGoWithAFile(t *testing.T) {
	for name, want := range map[string]bool{
		"user.a": true, "trusted.a": true, capabilities: true, accessACL: true, selinuxLabel: true,
		"trusted.overlay.origin": false, "user.overlay.origin": false, "security.ima": false, "security.evm": false,
		"system.posix_acl_default": false, "": false,
	} {
		require.Equal(t, want, goes(name), name)
	}
}

// TestALinkIsStillReplaced has the agent's own files take the place of what is no file.
func TestALinkIsStillReplaced(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "a")))
	require.NoError(t, Disk{NoSync: true}.WriteFile(filepath.Join(dir, "a"), []byte("new")))
	info, err := os.Lstat(filepath.Join(dir, "a"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
}
