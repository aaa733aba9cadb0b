package host

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	for link, target := range map[string]string{
		"bin": "usr/bin", "abs": "/usr/lib", "up": "../../../../etc", "chain": "abs/x", "self": "self", "dot": ".",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	root := Root{Dir: dir, Private: filepath.Join(dir, "/var/lib/refit")}
	for name, tc := range map[string]struct{ path, want string }{
		"nothing there":         {"/a/b/c", "/a/b/c"},
		"a relative link":       {"/bin/a", "/usr/bin/a"},
		"an absolute link":      {"/abs/a", "/usr/lib/a"},
		"one that leads out":    {"/up/a", "/etc/a"},
		"a chain":               {"/chain/a", "/usr/lib/x/a"},
		"one to where it is":    {"/dot/dot/a", "/a"},
		"the state's neighbour": {"/var/lib/refit2", "/var/lib/refit2"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := root.Resolve(tc.path)
			require.NoError(t, err)
			assert.Equal(t, filepath.Join(dir, tc.want), got)
		})
	}
	_, err := root.Resolve("/self/a")
	require.Error(t, err)
	_, err = root.Resolve("/dot/var/lib/refit/token")
	require.Error(t, err)
}

// Who owns a directory can have a link in it lead to what root alone may write.
func TestLinksOfUsersAreNotFollowed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "home/app"), 0o755))
	for link, uid := range map[string]int{"home/app/.env": 4711, "home/app/dir": 4711, "home/app/roots": 0, "app": 0} {
		target := "/etc"
		if link == "app" {
			target = "home/app"
		}
		require.NoError(t, os.Symlink(target, filepath.Join(dir, link)))
		require.NoError(t, os.Lchown(filepath.Join(dir, link), uid, uid))
	}
	root := Root{Dir: dir}
	for _, p := range []string{"/home/app/.env", "/home/app/dir/profile", "/app/.env", "/home/app/roots/../home/app/dir/a"} {
		_, err := root.Resolve(p)
		require.ErrorContains(t, err, "is a symbolic link of user 4711, which is not followed", p)
	}
	_, err := root.Observe("/home/app/.env")
	require.ErrorContains(t, err, "/home/app/.env is a symbolic link of user 4711")
	got, err := root.Resolve("/home/app/roots/profile")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "etc/profile"), got)
}

func TestOwners(t *testing.T) {
	o := Owners{users: map[string]int{"root": 0, "etcd": 52}, groups: map[string]int{"root": 0, "etcd": 53}}
	for name, tc := range map[string]struct {
		owner    string
		uid, gid int
		fails    string
	}{
		"names":               {owner: "etcd:etcd", uid: 52, gid: 53},
		"numbers":             {owner: "7:8", uid: 7, gid: 8},
		"both":                {owner: "etcd:0", uid: 52},
		"an unknown user":     {owner: "who:root", fails: `user "who"`},
		"an unknown group":    {owner: "root:who", fails: `group "who"`},
		"no group":            {owner: "root", fails: "user:group"},
		"an empty group":      {owner: "root:", fails: "user:group"},
		"an empty user":       {owner: ":root", fails: "user:group"},
		"a negative number":   {owner: "-1:0", fails: `user "-1"`},
		"the number for none": {owner: "4294967295:0", fails: "user"},
	} {
		t.Run(name, func(t *testing.T) {
			uid, gid, err := o.Resolve(tc.owner)
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, []int{tc.uid, tc.gid}, []int{uid, gid})
		})
	}
	assert.True(t, o.Same("root:root", "0:0"))
	assert.True(t, o.Same("who:who", "who:who"), "unknown, but spelled alike")
	assert.False(t, o.Same("who:who", "0:0"))
	assert.False(t, o.Same("root:root", "etcd:etcd"))
}

func TestAtomicWrite(t *testing.T) {
	want := State{UID: KeepOwner, GID: KeepOwner, Mode: 0o2755}
	t.Run("mode and missing directories, whatever the umask", func(t *testing.T) {
		dir := t.TempDir()
		target := filepath.Join(dir, "a/b/c")
		require.NoError(t, Disk{}.Write(target, bytes.NewReader([]byte("x")), want))
		info, err := os.Stat(target)
		require.NoError(t, err)
		assert.Equal(t, 0o755|os.ModeSetgid, info.Mode())
		info, err = os.Stat(filepath.Join(dir, "a"))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	})
	t.Run("a failure leaves the old and nothing else", func(t *testing.T) {
		dir := t.TempDir()
		target := filepath.Join(dir, "a")
		require.NoError(t, os.WriteFile(target, []byte("old"), 0o600))
		full := io.MultiReader(bytes.NewReader([]byte("half")), failing{})
		require.ErrorIs(t, Disk{}.Write(target, full, want), errFull)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Len(t, entries, 1)
		data, err := os.ReadFile(target)
		require.NoError(t, err)
		assert.Equal(t, "old", string(data))
	})
	t.Run("a sweep takes the agent's own files only", func(t *testing.T) {
		dir := t.TempDir()
		for _, name := range []string{".refit-1.tmp", ".refit-a.tmp", ".refit-.tmp", "refit-1.tmp", ".refit-1"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		Disk{}.Sweep(dir)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Len(t, entries, 4)
		assert.NoFileExists(t, filepath.Join(dir, ".refit-1.tmp"))
	})
}

var errFull = errors.New("no space left on device")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errFull }
