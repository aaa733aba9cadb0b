package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// withAccounts gives the node stand-ins for the programs that edit accounts.
func (n *testNode) withAccounts() *testNode {
	n.t.Helper()
	script, err := os.ReadFile("user/testdata/shadow.sh")
	require.NoError(n.t, err)
	for _, p := range []string{"useradd", "usermod", "userdel", "groupadd", "groupdel", "chpasswd", "visudo"} {
		n.put("/usr/sbin/"+p, string(script))
		require.NoError(n.t, os.Chmod(filepath.Join(n.root, "/usr/sbin", p), 0o755))
	}
	n.put("/etc/shadow", "root:*:1:0:99999:7:::\nother:!:1:0:99999:7:::\n")
	n.put("/bin/bash", "")
	require.NoError(n.t, os.Chmod(filepath.Join(n.root, "/bin/bash"), 0o755))
	return n
}

func userRequest(token int64, u *node.User, pathsAndContents ...string) node.Request {
	req := request(token, pathsAndContents...)
	req.Rules.Domains = disruption.BuiltinRules().Domains
	if u != nil {
		req.Resources = append(req.Resources, node.Resource{User: u})
	}
	return req
}

func TestUsers(t *testing.T) {
	other := func(edit func(u *node.User)) *node.User {
		u := node.User{Name: "other", Gecos: "Other", PasswordHash: "$6$secret"}
		edit(&u)
		return &u
	}
	same := func(*node.User) {}
	shell := func(u *node.User) { u.Shell = "/bin/bash" }
	t.Run("are made, changed and locked out", func(t *testing.T) {
		n := newTestNode(t).withAccounts()
		require.Equal(t, "changed user other", n.succeed(userRequest(1, other(same))).Message)
		require.Contains(t, n.content("/etc/shadow"), "other:!$6$secret:")
		require.Empty(t, n.plan(userRequest(2, other(same))).Changes)
		n.succeed(userRequest(3, nil))
		require.Contains(t, n.content("/etc/shadow"), "other:!$6$secret:1:0:99999:7::1:")
		require.NotContains(t, n.content("/var/lib/refit/journal.jsonl"), "secret")
	})
	t.Run("are repaired with the password that was applied, and not with one that their Secret has now", func(t *testing.T) {
		n := newTestNode(t).withAccounts()
		n.succeed(userRequest(1, other(same)))
		repair := userRequest(2, other(func(u *node.User) { u.PasswordHash = "$6$rotated" }))
		repair.Digest, repair.Repair = n.drift().Digest, true
		plan := n.plan(repair)
		require.Empty(t, plan.Changes)
		require.Contains(t, plan.Notes[0], "the password of user other")
		n.put("/etc/shadow", "other:!$6$mine:1:0:99999:7:::\n")
		n.succeed(repair)
		require.Contains(t, n.content("/etc/shadow"), "other:!$6$secret:")
		repair.Repair, repair.Token = false, 3
		n.succeed(repair)
		require.Contains(t, n.content("/etc/shadow"), "other:!$6$rotated:", "an update brings it")
	})
	t.Run("what somebody has changed of one stays when the specs change another part", func(t *testing.T) {
		n := newTestNode(t).withAccounts()
		n.succeed(userRequest(1, other(same)))
		n.put("/etc/shadow", "other:!$6$mine:1:0:99999:7:::\n")
		plan := n.plan(userRequest(2, other(shell)))
		require.Equal(t, []node.Drift{{Ref: node.Ref{Kind: node.UserKind, Name: "other"}, What: []string{"password"}}}, plan.Drift)
		n.succeed(userRequest(2, other(shell)))
		require.Contains(t, n.content("/etc/passwd"), "other:x:4711:4711:Other:/:/bin/bash")
		require.Contains(t, n.content("/etc/shadow"), "$6$mine")
	})
	t.Run("are as before when the run fails", func(t *testing.T) {
		n := newTestNode(t).withAccounts()
		before := n.content("/etc/passwd") + n.content("/etc/shadow")
		n.units.fails["restart kubelet.service"] = errors.New("exit status 1")
		n.fail(userRequest(1, other(shell), "/etc/kubelet/a", "1"))
		require.Equal(t, before, n.content("/etc/passwd")+n.content("/etc/shadow"))
	})
	t.Run("the one by which refit comes in is not locked", func(t *testing.T) {
		n := newTestNode(t).withAccounts()
		n.succeed(userRequest(1, other(same)))
		req := userRequest(2, nil)
		req.Login.User = "other"
		require.Contains(t, n.refuse(req, node.ReasonBlocked), "refit logs in to the node as other")
	})
}

func TestTimeSynchronization(t *testing.T) {
	running := host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled", Type: "simple"}
	missing := host.UnitState{LoadState: "not-found", ActiveState: "inactive"}
	newNode := func(t *testing.T) *testNode {
		n := newTestNode(t)
		n.put("/usr/sbin/chronyd", "")
		n.put("/etc/chrony.conf", "pool distribution.example\n")
		n.units.states = map[string]host.UnitState{"chronyd.service": running, "chrony.service": missing, disruption.TimeSyncUnit: missing}
		return n
	}
	ntp := func(token int64, servers ...string) node.Request {
		req := userRequest(token, nil)
		req.Resources = append(req.Resources, node.Resource{NTP: &node.NTP{Enabled: true, Servers: servers}})
		return req
	}
	t.Run("is that of the node", func(t *testing.T) {
		n := newNode(t)
		require.Equal(t, []disruption.Action{{Type: disruption.Restart, Unit: "chronyd.service"}}, n.succeed(ntp(1, "a.example")).Actions)
		require.Equal(t, []string{"restart chronyd.service"}, n.units.calls)
		require.Contains(t, n.content("/etc/chrony.conf"), "server a.example iburst")
		n.succeed(userRequest(2, nil))
		require.Equal(t, "pool distribution.example\n", n.content("/etc/chrony.conf"))
	})
	t.Run("is as before when it does not come back", func(t *testing.T) {
		n := newNode(t)
		n.units.fails["restart chronyd.service"] = errors.New("exit status 1")
		n.fail(ntp(1, "a.example"))
		require.Equal(t, "pool distribution.example\n", n.content("/etc/chrony.conf"))
	})
	t.Run("a rule for a file means the unit that the node has", func(t *testing.T) {
		n := newNode(t)
		req := request(1, "/etc/chrony.keys", "1 x")
		req.Rules.Files = append(req.Rules.Files[:len(req.Rules.Files):len(req.Rules.Files)], disruption.Rule{
			Path: "/etc/chrony.keys", Actions: []disruption.Action{{Type: disruption.Restart, Unit: disruption.TimeSyncUnit}},
		})
		n.succeed(req)
		require.Equal(t, []string{"restart chronyd.service"}, n.units.calls)
	})
}
