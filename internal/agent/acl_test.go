package agent

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

// setACL gives user 4711 and the mask all access to /etc/quiet/a, and the group none.
func setACL(t *testing.T, n *testNode) {
	t.Helper()
	list := "\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x06\x00\x67\x12\x00\x00\x04\x00\x00\x00\xff\xff\xff\xff" +
		"\x10\x00\x06\x00\xff\xff\xff\xff\x20\x00\x00\x00\xff\xff\xff\xff"
	err := unix.Setxattr(filepath.Join(n.root, "/etc/quiet/a"), "system.posix_acl_access", []byte(list), 0)
	if errors.Is(err, unix.ENOTSUP) {
		t.Skip("the file system of the temporary directory has no access control lists; set TMPDIR to one on ext4, xfs or btrfs")
	}
	require.NoError(t, err)
}

func hasACL(t *testing.T, n *testNode) bool {
	t.Helper()
	_, err := unix.Getxattr(filepath.Join(n.root, "/etc/quiet/a"), "system.posix_acl_access", nil)
	if !errors.Is(err, unix.ENODATA) {
		require.NoError(t, err)
	}
	return err == nil
}

// TestAnAccessControlListStays has the list of a file stay when that is written, and come back with it.
func TestAnAccessControlListStays(t *testing.T) {
	t.Run("written for the first time, and put back", func(t *testing.T) {
		n := newTestNode(t)
		n.put("/etc/quiet/a", "old")
		setACL(t, n)
		n.succeed(request(1, "/etc/quiet/a", "new"))
		require.Equal(t, "new", n.content("/etc/quiet/a"))
		require.True(t, hasACL(t, n))
		require.NoError(t, unix.Removexattr(filepath.Join(n.root, "/etc/quiet/a"), "system.posix_acl_access"))
		n.succeed(request(2))
		require.Equal(t, "old", n.content("/etc/quiet/a"))
		require.True(t, hasACL(t, n))
	})
	t.Run("removed, and rolled back", func(t *testing.T) {
		n := newTestNode(t)
		n.succeed(request(1, "/etc/quiet/a", "old"))
		setACL(t, n)
		n.units.fails["restart kubelet.service"] = errors.New("exit status 1")
		status := n.fail(request(2, "/etc/kubelet/a", "a"))
		require.Contains(t, n.events(), "step-started remove /etc/quiet/a", status.Message)
		require.Equal(t, "old", n.content("/etc/quiet/a"))
		require.True(t, hasACL(t, n))
	})
}

// TestAFileOfAnotherOwnerWithAnAccessControlListIsNotReplaced has it not written: whoever owns a file gives others access to it.
func TestAFileOfAnotherOwnerWithAnAccessControlListIsNotReplaced(t *testing.T) {
	others := func(token int64) node.Request {
		req := request(token, "/etc/quiet/a", "new")
		req.Resources[0].File.Owner = "4711:4711"
		return req
	}
	t.Run("in a plan", func(t *testing.T) {
		n := newTestNode(t)
		n.put("/etc/quiet/a", "old")
		setACL(t, n)
		plan := n.plan(others(1))
		require.Len(t, plan.Blocked, 1)
		require.Equal(t, "/etc/quiet/a", plan.Blocked[0].Path)
		require.Contains(t, plan.Blocked[0].Reason, "has an access control list on the node")
		require.Empty(t, plan.Changes)
	})
	t.Run("with a list that came after the plan", func(t *testing.T) {
		n := newTestNode(t)
		n.put("/etc/quiet/a", "old")
		w := &work{Plan: n.plan(others(1)), Expect: map[string]host.State{"/etc/quiet/a": {Exists: true, UID: 4711, GID: 4711}}}
		setACL(t, n)
		_, err := n.agent.prepare(t.Context(), w)
		require.ErrorContains(t, err, "has an access control list on the node")
		require.Equal(t, "old", n.content("/etc/quiet/a"))
	})
}

// TestExtendedAttributesStay has them stay when a file is written, and come back when that is taken back.
func TestExtendedAttributesStay(t *testing.T) {
	n := newTestNode(t)
	n.put("/etc/kubelet/a", "old")
	p := filepath.Join(n.root, "/etc/kubelet/a")
	err := unix.Setxattr(p, "user.note", []byte("x"), 0)
	if errors.Is(err, unix.ENOTSUP) {
		t.Skip("the file system of the temporary directory has no extended attributes; set TMPDIR to one on ext4, xfs or btrfs")
	}
	require.NoError(t, err)
	noted := func() string {
		value := make([]byte, 10)
		size, err := unix.Getxattr(p, "user.note", value)
		require.NoError(t, err)
		return string(value[:size])
	}
	n.units.fails["restart kubelet.service"] = errors.New("exit status 1")
	n.fail(request(1, "/etc/kubelet/a", "new"))
	require.Equal(t, "old", n.content("/etc/kubelet/a"))
	require.Equal(t, "x", noted())

	delete(n.units.fails, "restart kubelet.service")
	n.succeed(request(2, "/etc/kubelet/a", "new"))
	require.Equal(t, "x", noted())
	require.NoError(t, unix.Setxattr(p, "user.note", []byte("y"), 0))
	n.succeed(request(3))
	require.Equal(t, "old", n.content("/etc/kubelet/a"))
	require.Equal(t, "x", noted())
}
