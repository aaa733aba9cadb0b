package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// newAliceNode is a node on which alice can be made. Her number is that of the test, which may give files to nobody else.
func newAliceNode(t *testing.T, root string) *testNode {
	t.Helper()
	n := layOut(t, root).withAccounts()
	n.program("useradd", fmt.Sprintf(`cd "$REFIT_ROOT"; [ ! -e home/alice/.profile ] || exit 9
echo "alice:x:%d:%d::/home/alice:/bin/bash" >>etc/passwd; echo "alice:x:%d:" >>etc/group; echo "alice:!:1:0:99999:7:::" >>etc/shadow; mkdir -p home/alice`,
		os.Getuid(), os.Getgid(), os.Getgid()))
	return n
}

// aliceRequest brings alice, and files: one in her home, and one elsewhere that belongs to her.
func aliceRequest(token int64, u *node.User) node.Request {
	req := userRequest(token, u, "/etc/quiet/a", "a", "/home/alice/.profile", "b")
	req.Rules.Files = disruption.Table{
		{Path: "/etc/quiet", Actions: []disruption.Action{{Type: disruption.None}}}, {Path: "/home", Actions: []disruption.Action{{Type: disruption.None}}},
	}
	req.Resources[0].File.Owner = "alice:alice"
	return req
}

// TestAFileOfAUserWhoIsMadeWithIt has the process die at each boundary. It is not parallel: a program that it starts has, until it is
// executed, the locks open that tests beside it look at.
func TestAFileOfAUserWhoIsMadeWithIt(t *testing.T) {
	alice := &node.User{Name: "alice"}
	for nth := 0; ; nth += stride() {
		n := newAliceNode(t, memoryDir(t))
		require.Empty(t, n.plan(aliceRequest(1, alice)).Blocked)
		died := n.dieAt(nth)
		var status node.Status
		for range 4 {
			if status, _ = n.agent.Apply(t.Context(), aliceRequest(1, alice)); status.State == node.Succeeded {
				break
			}
			n.newProcess()
		}
		require.Equal(t, node.Succeeded, status.State, "after death at %q: %s", *died, status.Message)
		require.Equal(t, "a", n.content("/etc/quiet/a"))
		require.Equal(t, "b", n.content("/home/alice/.profile"))
		require.Empty(t, n.plan(aliceRequest(1, alice)).Changes)
		require.Empty(t, n.drift().Drift)
		if *died == "" {
			break
		}
	}
}

func TestAFileOfAUserGoesBackBeforeTheUser(t *testing.T) {
	n := newAliceNode(t, t.TempDir())
	before := n.content("/etc/passwd")
	req := aliceRequest(1, &node.User{Name: "alice"})
	n.at("begun verify", func() { n.put("/etc/quiet/a", "another's") })
	status := n.fail(req)
	require.Contains(t, status.Message, "/etc/quiet/a is not as it was written")
	require.True(t, status.RolledBack, status.Message)
	require.Equal(t, before, n.content("/etc/passwd"))
	require.Equal(t, "(missing)", n.content("/etc/quiet/a"))
	_, err := os.Stat(filepath.Join(n.root, "/home/alice/.profile"))
	require.Error(t, err)
}

func TestAFileOfAUserWhoDoesNotComeIsBlocked(t *testing.T) {
	for name, u := range map[string]*node.User{
		"nobody brings one": nil, "another one comes": {Name: "bob"}, "it is not made in place": {Name: "alice", Unmanaged: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newAliceNode(t, t.TempDir())
			blocked := n.plan(aliceRequest(1, u)).Blocked
			require.Len(t, blocked, 1)
			require.Equal(t, `user "alice" of owner "alice:alice" is not in the node's /etc/passwd`, blocked[0].Reason)
		})
	}
	t.Run("somebody has removed the user", func(t *testing.T) {
		n := newAliceNode(t, t.TempDir())
		passwd, group := n.content("/etc/passwd"), n.content("/etc/group")
		n.succeed(userRequest(1, &node.User{Name: "alice"}))
		n.put("/etc/passwd", passwd)
		n.put("/etc/group", group)
		require.NotEmpty(t, n.plan(aliceRequest(2, &node.User{Name: "alice"})).Blocked)
	})
}
