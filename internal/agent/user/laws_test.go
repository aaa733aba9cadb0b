package user

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/node"
)

// drawUser wants something of bob, who is there, or of carol, who is not, or nothing.
func drawUser(t *rapid.T, label string) *node.User {
	if rapid.IntRange(0, 4).Draw(t, label+" listed") == 0 {
		return nil
	}
	from := func(what string, values ...string) string { return rapid.SampledFrom(values).Draw(t, label+" "+what) }
	return &node.User{
		Gecos: from("gecos", "", "A", "B"), Shell: from("shell", "", "/bin/sh", "/bin/bash"), Sudo: from("sudo", "", everything, "ALL=ALL"),
		PasswordHash: from("password", "", "$6$bob", "$6$new"), PrimaryGroup: from("primary", "", "video", "own"),
		Groups:            rapid.SampledFrom([][]string{nil, {"sudo"}, {"video", "new"}, {"sudo", "own"}}).Draw(t, label+" groups"),
		LockPassword:      rapid.SampledFrom([]*bool{nil, new(true), new(false)}).Draw(t, label+" lock"),
		Inactive:          rapid.Bool().Draw(t, label+" inactive"),
		SSHAuthorizedKeys: pick(rapid.Uint8Range(0, 15).Draw(t, label+" keys")),
	}
}

// drawNode is a node as bootstrap, or somebody, has left it.
func drawNode(t *rapid.T, dir string) *testNode {
	root, err := os.MkdirTemp(dir, "node")
	require.NoError(t, err)
	n := layOut(t, root)
	if rapid.Bool().Draw(t, "cloud-init's rules") {
		n.PutMode(cloudInitSudoers, cloudInitRules, 0o440)
	}
	if keys := pick(rapid.Uint8Range(0, 15).Draw(t, "keys that are there")); len(keys) > 0 {
		n.keys("bob", append(keys, "# bob's own")...)
	}
	n.PutMode("/etc/shadow", "root:*:1:0:99999:7:::\nbob:"+rapid.SampledFrom([]string{"$6$bob", "!$6$bob", "!", "*", "!!"}).Draw(t, "shadow")+
		":1:0:99999:7::"+rapid.SampledFrom([]string{"", "1", "30000"}).Draw(t, "expires")+":\n", 0o600)
	return n
}

func TestLaws(t *testing.T) {
	t.Parallel()
	dir := memoryDir(t)
	rapid.Check(t, func(rt *rapid.T) {
		n := drawNode(rt, dir)
		defer n.gone()
		name := rapid.SampledFrom([]string{"bob", "carol", "video"}).Draw(rt, "name")
		was, desired := drawUser(rt, "was"), drawUser(rt, "desired")
		for _, u := range []*node.User{was, desired} {
			if u != nil {
				u.Name = name
			}
		}
		q := ask(was, desired)
		q.Known = rapid.Bool().Draw(rt, "known")
		before := n.snapshot("bob", "carol", "video")
		a := n.plan(q)
		require.Equal(rt, a, n.plan(q), "the same node and question give the same answer")
		require.Equal(rt, before, n.snapshot("bob", "carol", "video"), "planning changes nothing")
		if a.Operation == "" || a.Blocked != "" {
			return
		}
		c := change(q, a)
		crashed(rt, n, func() error { _, err := n.kind.Make(context.Background(), c); return err })
		made := n.snapshot("bob", "carol", "video")
		_, err := n.kind.Make(context.Background(), c)
		require.NoError(rt, err)
		require.Equal(rt, made, n.snapshot("bob", "carol", "video"), "twice is once")
		requireVerified(rt, n, q, a.Drift)

		crashed(rt, n, func() error { return n.kind.Undo(context.Background(), c) })
		require.Equal(rt, before, n.snapshot("bob", "carol", "video"), "what is undone is as before")
		require.NoError(rt, n.kind.Undo(context.Background(), c))
		require.Equal(rt, before, n.snapshot("bob", "carol", "video"))
	})
}

// crashed does something on a node whose programs die now and then, until it succeeds.
func crashed(t *rapid.T, n *testNode, do func() error) {
	if at := rapid.IntRange(0, 8).Draw(t, "dies"); at > 0 {
		n.die(at-1, rapid.SampledFrom([]string{"before", "after"}).Draw(t, "when"))
	}
	err := do()
	for range 3 {
		if err == nil {
			break
		}
		err = do()
	}
	require.NoError(t, err)
	_ = os.Remove(n.Path("/dies"))
}

func requireVerified(t *rapid.T, n *testNode, q kind.Question, drift []string) {
	if q.Desired != nil {
		q.Was = q.Desired
	}
	q.Known = true
	again := n.plan(q)
	require.Empty(t, again.Operation)
	require.Empty(t, again.Blocked)
	require.Subset(t, drift, again.Drift)
}

// die lets a program die at its nth call from now.
func (n *testNode) die(nth int, when string) {
	n.Put("/dies", fmt.Sprintf("%d %s\n", nth, when))
}

// TestCrashes lets each program die at each of its calls, and then either goes on or goes back.
func TestCrashes(t *testing.T) {
	for name, q := range map[string]kind.Question{
		"added": ask(nil, with(alice(), func(u *node.User) { u.Inactive = true })),
		"changed": ask(with(bob(), func(u *node.User) { u.LockPassword = new(false) }),
			with(alice(), func(u *node.User) { u.Name, u.Inactive = "bob", true })),
		"removed": ask(with(bob(), func(u *node.User) { u.SSHAuthorizedKeys, u.Sudo = []string{keyBob}, everything }), nil),
	} {
		for _, when := range []string{"before", "after"} {
			for _, back := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, dead %s, back %v", name, when, back), func(t *testing.T) {
					deaths := 0
					for nth := 0; crashAt(t, q, nth, when, back); nth++ {
						deaths++
					}
					require.NotZero(t, deaths)
				})
			}
		}
	}
}

// crashAt returns false when nothing died.
func crashAt(t *testing.T, q kind.Question, nth int, when string, back bool) bool {
	n := newNode(t)
	defer n.gone()
	n.keys("bob", keyBob)
	n.PutMode(cloudInitSudoers, cloudInitRules, 0o440)
	before := n.snapshot("bob", "alice")
	c := change(q, n.plan(q))
	n.die(nth, when)
	_, err := n.kind.Make(context.Background(), c)
	if back {
		first := n.kind.Undo(context.Background(), c)
		if first != nil {
			require.NoError(t, n.kind.Undo(context.Background(), c))
		}
		require.Equal(t, before, n.snapshot("bob", "alice"))
		return err != nil || first != nil
	}
	if err != nil {
		require.NotContains(t, err.Error(), "$6$")
		_, again := n.kind.Make(context.Background(), c)
		require.NoError(t, again)
	}
	n.shows(q)
	require.NotContains(t, strings.Join(n.calls(), "\n"), "$6$", "no argument is a secret")
	return err != nil
}
