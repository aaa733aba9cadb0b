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

// fakeMatchpathcon stands in for the program of that name: it reads a file_contexts of the node, of which the last line that fits counts.
const fakeMatchpathcon = `#!/bin/sh
[ "$1 $2" = "-n -m" ] || exit 2
case $3 in file) kind=--;; dir) kind=-d;; *) exit 2;; esac
found=
while read -r pattern only label; do
  [ -n "$label" ] || { label=$only; only=$kind; }
  [ "$only" = "$kind" ] && printf '%s\n' "$4" | grep -Eqx "$pattern" && found=$label
done <"$REFIT_ROOT/etc/selinux/targeted/contexts/files/file_contexts"
[ -n "$found" ] && echo "$found"
`

// fileContexts are lines of Fedora's policy.
const fileContexts = `/.* system_u:object_r:default_t:s0
/etc(/.*)? system_u:object_r:etc_t:s0
/etc/resolv\.conf.* -- system_u:object_r:net_conf_t:s0
/usr/bin(/.*)? system_u:object_r:bin_t:s0
/home/[^/]+/\.ssh(/.*)? unconfined_u:object_r:ssh_home_t:s0
/proc(/.*)? <<none>>
`

// labelled makes a directory that stands for a node with SELinux. It is not: nobody enforces anything, and the labels are attributes only.
func labelled(t *testing.T) (string, Host) {
	t.Helper()
	if _, err := os.Stat(selinuxEnforce); err == nil {
		t.Skip("SELinux of the machine that runs the test labels files by itself")
	}
	dir := t.TempDir()
	for p, text := range map[string]string{
		"sys/fs/selinux/enforce": "1", "etc/selinux/config": "SELINUX=enforcing\nSELINUXTYPE=targeted\n",
		"etc/selinux/targeted/contexts/files/file_contexts": fileContexts,
		"etc/selinux/targeted/contexts/customizable_types":  "container_file_t\n",
		"usr/sbin/matchpathcon":                             fakeMatchpathcon,
	} {
		at := filepath.Join(dir, p)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
		require.NoError(t, os.Chmod(at, 0o755))
	}
	setLabelOf(t, dir, "sys/fs/selinux/enforce", "system_u:object_r:security_t:s0")
	return dir, Host{Root: Root{Dir: dir}, Disk: Disk{NoSync: true}}
}

func setLabelOf(t *testing.T, dir, p, label string) {
	t.Helper()
	err := unix.Setxattr(filepath.Join(dir, p), selinuxLabel, append([]byte(label), 0), 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) {
		t.Skip("labels can be set by root only, and where a file system has extended attributes")
	}
	require.NoError(t, err)
}

func labelOf(t *testing.T, dir, p string) string {
	t.Helper()
	buf := make([]byte, 256)
	n, err := unix.Getxattr(filepath.Join(dir, p), selinuxLabel, buf)
	if errors.Is(err, unix.ENODATA) {
		return ""
	}
	require.NoError(t, err)
	return strings.TrimRight(string(buf[:n]), "\x00")
}

func TestNewFilesHaveTheLabelsOfTheNodesPolicy(t *testing.T) {
	dir, h := labelled(t)
	write := func(p string) string {
		require.NoError(t, h.WriteFile(p, []byte("new"), State{Mode: 0o644, UID: KeepOwner, GID: KeepOwner}))
		return labelOf(t, dir, p)
	}
	require.Equal(t, "system_u:object_r:etc_t:s0", write("/etc/app/conf"))
	require.Equal(t, "system_u:object_r:etc_t:s0", labelOf(t, dir, "/etc/app"), "of a directory that is made on the way")
	require.Equal(t, "system_u:object_r:net_conf_t:s0", write("/etc/resolv.conf"))
	require.Empty(t, write("/proc/a"), "the policy wants none")

	setLabelOf(t, dir, "/etc/resolv.conf", "system_u:object_r:etc_t:s0")
	require.Equal(t, "system_u:object_r:net_conf_t:s0", write("/etc/resolv.conf"), "one that is wrong is put right")
	setLabelOf(t, dir, "/etc/resolv.conf", "staff_u:object_r:net_conf_t:s0:c1,c2")
	require.Equal(t, "staff_u:object_r:net_conf_t:s0:c1,c2", write("/etc/resolv.conf"), "what differs beside the type stays")
	setLabelOf(t, dir, "/etc/resolv.conf", "system_u:object_r:container_file_t:s0")
	require.Equal(t, "system_u:object_r:container_file_t:s0", write("/etc/resolv.conf"), "people give that type to files")

	was, err := h.Save("/etc/resolv.conf")
	require.NoError(t, err)
	require.NoError(t, h.RemoveFile("/etc/resolv.conf"))
	require.NoError(t, h.PutBack("/etc/resolv.conf", was))
	require.Equal(t, "system_u:object_r:container_file_t:s0", labelOf(t, dir, "/etc/resolv.conf"))
}

func TestKeysOfUsersAreLabelled(t *testing.T) {
	dir, h := labelled(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "home/alice/.ssh"), 0o700))
	f, err := os.Create(filepath.Join(dir, "home/alice/.ssh/new"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, h.Complete(f, nil, "/home/alice/.ssh/authorized_keys"))
	require.Equal(t, "unconfined_u:object_r:ssh_home_t:s0", labelOf(t, dir, "home/alice/.ssh/new"))
	d, err := os.Open(filepath.Join(dir, "home/alice/.ssh"))
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, h.Complete(d, nil, "/home/alice/.ssh"))
	require.Equal(t, "unconfined_u:object_r:ssh_home_t:s0", labelOf(t, dir, "home/alice/.ssh"))
}

func TestWithoutSELinuxNothingIsLabelled(t *testing.T) {
	for name, spoil := range map[string]string{"it is off": "sys/fs/selinux/enforce", "nobody can be asked": "usr/sbin/matchpathcon"} {
		dir, h := labelled(t)
		require.NoError(t, os.Remove(filepath.Join(dir, spoil)))
		require.NoError(t, h.WriteFile("/etc/resolv.conf", []byte("new"), State{Mode: 0o644, UID: KeepOwner, GID: KeepOwner}), name)
		require.Empty(t, labelOf(t, dir, "/etc/resolv.conf"), name)
	}
}

// TestTheAgentsOwnProgramMayBeExecuted has systemd be able to start what is in the agent's own directory.
func TestTheAgentsOwnProgramMayBeExecuted(t *testing.T) {
	for name, tc := range map[string]struct{ without, want string }{
		"as the policy says":             {"", "system_u:object_r:bin_t:s0"},
		"as it is where nobody is asked": {"usr/sbin/matchpathcon", "system_u:object_r:bin_t:s0"},
		"not without SELinux":            {"sys/fs/selinux/enforce", "system_u:object_r:var_lib_t:s0"},
	} {
		dir, h := labelled(t)
		program := filepath.Join(dir, "var/lib/refit/refit-node")
		require.NoError(t, os.MkdirAll(filepath.Dir(program), 0o755))
		require.NoError(t, os.WriteFile(program, nil, 0o600))
		setLabelOf(t, dir, "var/lib/refit/refit-node", "system_u:object_r:var_lib_t:s0")
		if tc.without != "" {
			require.NoError(t, os.Remove(filepath.Join(dir, tc.without)))
		}
		require.NoError(t, h.LabelProgram(program), name)
		require.Equal(t, tc.want, labelOf(t, dir, "var/lib/refit/refit-node"), name)
		if tc.without == "" {
			require.ErrorContains(t, h.LabelProgram(program+"-away"), "SELinux is enforced")
			require.NoError(t, os.WriteFile(filepath.Join(dir, "sys/fs/selinux/enforce"), []byte("0"), 0o600))
			require.NoError(t, h.LabelProgram(program+"-away"), "it only warns")
		}
	}
}
