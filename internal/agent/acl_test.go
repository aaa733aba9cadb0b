package agent

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

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

// TestAFileWithAnAccessControlListIsNotReplaced has it neither written, removed nor put back: owner and mode alone would give its group
// what the list does not.
func TestAFileWithAnAccessControlListIsNotReplaced(t *testing.T) {
	blocked := func(t *testing.T, n *testNode, req node.Request) {
		t.Helper()
		plan := n.plan(req)
		require.Len(t, plan.Blocked, 1)
		require.Equal(t, "/etc/quiet/a", plan.Blocked[0].Path)
		require.Contains(t, plan.Blocked[0].Reason, "has an access control list on the node")
		require.Empty(t, plan.Changes)
	}
	t.Run("written for the first time", func(t *testing.T) {
		n := newTestNode(t)
		n.put("/etc/quiet/a", "old")
		setACL(t, n)
		blocked(t, n, request(1, "/etc/quiet/a", "new"))
	})
	t.Run("written again", func(t *testing.T) {
		n := newTestNode(t)
		n.succeed(request(1, "/etc/quiet/a", "old"))
		setACL(t, n)
		blocked(t, n, request(2, "/etc/quiet/a", "new"))
		require.Empty(t, n.plan(request(3, "/etc/quiet/a", "old", "/etc/quiet/b", "new")).Blocked, "what is left as it is blocks nothing")
	})
	t.Run("removed", func(t *testing.T) {
		n := newTestNode(t)
		n.succeed(request(1, "/etc/quiet/a", "old"))
		setACL(t, n)
		blocked(t, n, request(2))
	})
	t.Run("put back", func(t *testing.T) {
		n := newTestNode(t)
		n.put("/etc/quiet/a", "before")
		n.succeed(request(1, "/etc/quiet/a", "old"))
		setACL(t, n)
		blocked(t, n, request(2))
	})
	t.Run("with a list that came after the plan", func(t *testing.T) {
		n := newTestNode(t)
		n.put("/etc/quiet/a", "old")
		w := &work{Plan: n.plan(request(1, "/etc/quiet/a", "new"))}
		setACL(t, n)
		_, err := n.agent.prepare(t.Context(), w)
		require.ErrorContains(t, err, "has an access control list on the node")
		require.Equal(t, "old", n.content("/etc/quiet/a"))
	})
}
