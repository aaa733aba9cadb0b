package user

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/node"
)

// newRealNode has shadow's own programs do the work, in the directory that stands for the node.
func newRealNode(t *testing.T) *testNode {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can have useradd work in another directory")
	}
	n := newNode(t)
	for _, p := range programs {
		if p == "visudo" {
			continue
		}
		program, err := exec.LookPath(p)
		if err != nil {
			t.Skipf("this machine has no %s", p)
		}
		n.PutMode("/usr/sbin/"+p, fmt.Sprintf("#!/bin/sh\necho \"%s $*\" >>\"$REFIT_ROOT/calls\"\nexec %s -R \"$REFIT_ROOT\" \"$@\"\n", p, program), 0o755)
	}
	n.Put("/etc/login.defs", "USERGROUPS_ENAB yes\nUID_MIN 1000\nUID_MAX 60000\nGID_MIN 1000\nGID_MAX 60000\nENCRYPT_METHOD SHA512\n")
	return n
}

// TestRealPrograms has shadow's programs say whether they take what they are given: the stand-in says what we believe of them.
func TestRealPrograms(t *testing.T) {
	all := func(u *node.User) {
		u.Gecos, u.Shell, u.Groups, u.PasswordHash, u.Inactive = "Somebody, Room 1", "/bin/bash", []string{"video", "ops"}, "$6$salt$abc", true
		u.SSHAuthorizedKeys, u.Sudo = []string{keyAlice}, everything
	}
	unlocked := func(u *node.User) { u.LockPassword = new(false) }
	both := func(u *node.User) { all(u); unlocked(u) }
	carol := func(edit func(u *node.User)) *node.User { return with(&node.User{Name: "carol"}, edit) }
	tests := map[string]struct {
		q      kind.Question
		shadow string
		check  func(t *testing.T, n *testNode)
	}{
		"added": {q: ask(nil, carol(all)), check: func(t *testing.T, n *testNode) {
			is := n.view("carol").account
			require.Equal(t, []string{"!$6$salt$abc", "1", "/home/carol", "carol"}, []string{is.Password, is.Expires, is.Home, is.Primary})
		}},
		"added, with nothing said":    {q: ask(nil, carol(func(*node.User) {}))},
		"added, not locked":           {q: ask(nil, carol(both))},
		"added, of a group":           {q: ask(nil, carol(func(u *node.User) { u.PrimaryGroup, u.HomeDir = "staff", "/srv/carol" }))},
		"added, of a group that is":   {q: ask(nil, &node.User{Name: "video"})},
		"added, of a name with a dot": {q: ask(nil, &node.User{Name: "carol.smith", Sudo: everything})},
		"changed":                     {q: ask(with(bob(), unlocked), with(bob(), all))},
		"groups taken away":           {q: ask(with(bob(), func(u *node.User) { unlocked(u); u.Groups = []string{"sudo"} }), with(bob(), unlocked))},
		"locked":                      {q: ask(with(bob(), unlocked), bob())},
		"locked, without a password":  {q: ask(with(bob(), unlocked), bob()), shadow: ""},
		"unlocked":                    {q: ask(bob(), with(bob(), unlocked)), shadow: "!$6$bob"},
		"unlocked twice":              {q: ask(bob(), with(bob(), unlocked)), shadow: "!!$6$bob"},
		"a password where none was":   {q: ask(with(bob(), unlocked), with(bob(), both)), shadow: "*"},
		"a password for a locked one": {q: ask(with(bob(), unlocked), with(bob(), both)), shadow: "!!"},
		"a password taken away":       {q: ask(with(bob(), func(u *node.User) { unlocked(u); u.PasswordHash = "$6$bob" }), with(bob(), unlocked))},
		"removed":                     {q: ask(with(bob(), both), nil)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := newRealNode(t)
			if tc.shadow != "" || strings.Contains(name, "without a password") {
				n.PutMode("/etc/shadow", "root:*:1:0:99999:7:::\nbob:"+tc.shadow+":1:0:99999:7:::\n", 0o600)
			}
			before := n.accounts()
			a := n.plan(tc.q)
			require.Empty(t, a.Blocked)
			require.NotEmpty(t, a.Operation)
			c := change(tc.q, a)
			for range 2 {
				_, err := n.kind.Make(context.Background(), c)
				require.NoError(t, err)
			}
			n.shows(tc.q)
			require.NotContains(t, strings.Join(n.calls(), "\n"), "$6$", "no argument is a secret")
			if tc.check != nil {
				tc.check(t, n)
			}
			for range 2 {
				require.NoError(t, n.kind.Undo(context.Background(), c))
				require.Equal(t, before, n.accounts())
			}
			_, err := n.kind.Make(context.Background(), c)
			require.NoError(t, err)
			n.shows(tc.q)
		})
	}
}

// accounts is what the files of accounts say, but for the days on which passwords were changed.
func (n *testNode) accounts() []account {
	n.t.Helper()
	db, err := n.kind.database()
	require.NoError(n.t, err)
	var out []account
	for _, r := range db.users {
		out = append(out, db.account(r[0]))
	}
	for _, g := range db.groups {
		out = append(out, account{Primary: g[0], Groups: db.members(g[0])})
	}
	return out
}
