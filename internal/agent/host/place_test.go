package host

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a place is, it stays, whatever its path leads to by now.
func TestAPlaceStaysWhereItWas(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "elsewhere/b"), 0o755))
	at, err := walk(dir, "/a/b/new/c", true)
	require.NoError(t, err)
	defer at.close()
	require.Equal(t, filepath.Join(dir, "a/b/new/c"), at.host())
	require.NoError(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "was")))
	require.NoError(t, os.Symlink("elsewhere", filepath.Join(dir, "a")))

	require.NoError(t, at.write(Disk{}, strings.NewReader("x"), State{UID: KeepOwner, GID: KeepOwner, Mode: 0o640}, nil))
	data, err := os.ReadFile(filepath.Join(dir, "was/b/new/c"))
	require.NoError(t, err)
	require.Equal(t, "x", string(data))
	require.NoDirExists(t, filepath.Join(dir, "elsewhere/b/new"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "elsewhere/b/c"), nil, 0o600))
	require.NoError(t, at.remove(Disk{}))
	require.NoFileExists(t, filepath.Join(dir, "was/b/new/c"))
	require.FileExists(t, filepath.Join(dir, "elsewhere/b/c"))
}

func TestWhatComesMeanwhile(t *testing.T) {
	state := State{UID: KeepOwner, GID: KeepOwner, Mode: 0o600}
	t.Run("a link is not followed when a directory is made", func(t *testing.T) {
		dir := t.TempDir()
		at, err := walk(dir, "/a/b", true)
		require.NoError(t, err)
		defer at.close()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "other"), 0o755))
		require.NoError(t, os.Symlink("other", filepath.Join(dir, "a")))
		require.ErrorIs(t, at.write(Disk{}, strings.NewReader("x"), state, nil), syscall.ENOTDIR)
		require.NoFileExists(t, filepath.Join(dir, "other/b"))
	})
	t.Run("a directory is used as it is", func(t *testing.T) {
		dir := t.TempDir()
		at, err := walk(dir, "/a/b", true)
		require.NoError(t, err)
		defer at.close()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "a"), 0o700))
		require.NoError(t, at.write(Disk{}, strings.NewReader("x"), state, nil))
		info, err := os.Stat(filepath.Join(dir, "a"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	})
	t.Run("a link is replaced, and not written through", func(t *testing.T) {
		dir := t.TempDir()
		at, err := walk(dir, "/a", true)
		require.NoError(t, err)
		defer at.close()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), []byte("mine"), 0o600))
		require.NoError(t, os.Symlink("other", filepath.Join(dir, "a")))
		_, _, err = at.read("/a")
		require.ErrorContains(t, err, "/a is there already and is something else")
		require.NoError(t, at.write(Disk{}, strings.NewReader("x"), state, nil))
		data, err := os.ReadFile(filepath.Join(dir, "other"))
		require.NoError(t, err)
		require.Equal(t, "mine", string(data))
	})
	t.Run("a second name of a file keeps owner and mode", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), []byte("mine"), 0o600))
		require.NoError(t, os.Link(filepath.Join(dir, "other"), filepath.Join(dir, "a")))
		h := Host{Root: Root{Dir: dir}}
		require.NoError(t, h.WriteFile("/a", []byte("x"), State{UID: KeepOwner, GID: KeepOwner, Mode: 0o666}))
		info, err := os.Stat(filepath.Join(dir, "other"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	})
}

// Anybody can give a link of root's a second name, where the kernel lets them.
func TestSecondNamesOfLinksAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "open"), 0o755))
	require.NoError(t, os.Symlink("/etc", filepath.Join(dir, "link")))
	require.NoError(t, os.Link(filepath.Join(dir, "link"), filepath.Join(dir, "open/link")))
	root := Root{Dir: dir}
	_, err := root.Resolve("/open/link/x")
	require.NoError(t, err, "only we can have made it")
	require.NoError(t, os.Chmod(filepath.Join(dir, "open"), 0o777))
	_, err = root.Resolve("/open/link/x")
	require.ErrorContains(t, err, "/open/link is a symbolic link that has a second name")
	_, err = root.Resolve("/link/x")
	require.NoError(t, err)
}

func TestWalks(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a/file"), []byte("12345"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a/b/file"), []byte("123"), 0o600))
	require.NoError(t, os.Symlink("../../..", filepath.Join(dir, "a/b/up")))
	require.NoError(t, os.Symlink("b", filepath.Join(dir, "a/link")))
	h := Host{Root: Root{Dir: dir}}

	_, err := h.Resolve("/a/file/below")
	require.ErrorIs(t, err, syscall.ENOTDIR)
	got, err := h.Resolve("/a/b/up/a/../x/../y")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "y"), got)
	got, err = h.Resolve("/")
	require.NoError(t, err)
	require.Equal(t, dir, got)
	require.Error(t, h.WriteFile("/", nil, State{UID: KeepOwner, GID: KeepOwner}))

	entries, err := h.ReadDir("/a")
	require.NoError(t, err)
	require.Len(t, entries, 3)
	require.Equal(t, "b", entries[0].Name())
	require.True(t, entries[0].IsDir())
	require.True(t, entries[1].Mode().IsRegular())
	require.Equal(t, os.ModeSymlink, entries[2].Mode().Type())
	_, err = h.ReadDir("/missing")
	require.ErrorIs(t, err, os.ErrNotExist)

	to, err := h.Readlink("/a/link")
	require.NoError(t, err)
	require.Equal(t, "b", to)
	info, err := h.Stat("/a/link")
	require.NoError(t, err)
	require.True(t, info.IsDir())
	info, err = h.Lstat("/a/link")
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, info.Mode().Type())
	size, err := h.Size("/a")
	require.NoError(t, err)
	require.Equal(t, uint64(8), size)

	require.NoError(t, h.Link("file", "/a/link"))
	to, err = os.Readlink(filepath.Join(dir, "a/link"))
	require.NoError(t, err)
	require.Equal(t, "file", to)
	require.NoError(t, h.RemoveAll("/a/b/up"), "the link itself")
	require.NoError(t, h.RemoveAll("/a"))
	require.NoError(t, h.RemoveAll("/a"))
	require.NoDirExists(t, filepath.Join(dir, "a"))
}

// TestNothingStaysOpen looks that each way out of a walk releases its directories.
func TestNothingStaysOpen(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	dir := t.TempDir()
	h := Host{Root: Root{Dir: dir, Private: filepath.Join(dir, "private")}, Disk: Disk{NoSync: true}}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, os.Symlink("self", filepath.Join(dir, "self")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	before := open()
	for range 3 {
		for _, p := range []string{"/a/b", "/self/x", "/private/x", "/file/x", "/pipe", "/", "/file"} {
			_, _ = h.Resolve(p)
			_, _ = h.Observe(p)
			_, _ = h.ReadDir(p)
			_, _ = h.Size(p)
			_, _ = h.Space(p)
			_ = h.CheckOwned(p)
			if d, err := h.OpenDir(p); err == nil && d != nil {
				require.NoError(t, d.Close())
			}
			h.SweepBeside(p)
		}
		require.NoError(t, h.WriteFile("/x/y/z", nil, State{UID: KeepOwner, GID: KeepOwner, Mode: 0o600}))
		require.NoError(t, h.RemoveFile("/x/y/z"))
		require.NoError(t, h.RemoveAll("/x"))
		require.NoError(t, h.Disk.Mkdirs(filepath.Join(dir, "m/n"), 0o700))
		_ = h.Disk.Rename(filepath.Join(dir, "m/n"), filepath.Join(dir, "none/n"))
	}
	require.Equal(t, before, open())
}
