package user

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/host/hosttest"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// testNode is a directory that stands for a node.
type testNode struct {
	hosttest.Files
	t    hosttest.T
	kind *Kind
}

// programs that edit accounts, all played by one script.
var programs = []string{"useradd", "usermod", "userdel", "groupadd", "groupdel", "chpasswd", "visudo"}

func newNode(t *testing.T) *testNode {
	t.Helper()
	return layOut(t, memoryDir(t))
}

func layOut(t hosttest.T, root string) *testNode {
	t.Helper()
	h := host.Host{Root: host.Root{Dir: root}, Disk: host.Disk{NoSync: true}}
	n := &testNode{Files: hosttest.NewFiles(t, root), t: t, kind: New(h)}
	uid := os.Getuid()
	n.Put("/etc/passwd", fmt.Sprintf("root:x:%d:%d:root:/root:/bin/sh\nbob:x:%d:1500:Bob:/home/bob:/bin/sh\n", uid, os.Getgid(), n.id(1500)))
	n.PutMode("/etc/shadow", "root:*:1:0:99999:7:::\nbob:$6$bob:1:0:99999:7:::\n", 0o600)
	n.Put("/etc/group", fmt.Sprintf("root:x:%d:\nbob:x:1500:\nsudo:x:27:bob\nvideo:x:44:\n", os.Getgid()))
	n.PutMode("/bin/sh", "", 0o755)
	n.PutMode("/bin/bash", "", 0o755)
	n.PutMode("/usr/sbin/nologin", "", 0o755)
	n.dir("/home/bob", 1500)
	n.dir("/root", uid)
	n.dir("/etc/sudoers.d", uid)
	n.PutMode("/etc/sudoers", "root ALL=(ALL:ALL) ALL\n%sudo ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n", 0o440)
	if uid != 0 {
		n.Put("/ids", fmt.Sprint(uid))
	}
	script, err := filepath.Abs("testdata/shadow.sh")
	require.NoError(t, err)
	content, err := os.ReadFile(script)
	require.NoError(t, err)
	for _, p := range programs {
		n.PutMode("/usr/sbin/"+p, string(content), 0o755)
	}
	return n
}

// memoryDir is a temporary directory in memory, where there is one.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "refit-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// id is a number for an account. Only root can give files away, so for everybody else all accounts have one number.
func (n *testNode) id(uid int) int {
	if os.Getuid() != 0 {
		return os.Getuid()
	}
	return uid
}

// gone frees the memory that the directory takes.
func (n *testNode) gone() { _ = os.RemoveAll(n.Dir) }

func (n *testNode) dir(p string, uid int) {
	n.t.Helper()
	require.NoError(n.t, os.MkdirAll(n.Path(p), 0o755))
	require.NoError(n.t, os.Chown(n.Path(p), n.id(uid), -1))
}

// keys lays down keys as bootstrap does.
func (n *testNode) keys(user string, lines ...string) {
	n.t.Helper()
	uid := n.view(user).account.UID
	home := "/home/" + user
	if user == rootName {
		home = "/root"
	}
	n.dir(home+"/.ssh", uid)
	require.NoError(n.t, os.Chmod(n.Path(home+"/.ssh"), 0o700))
	n.PutMode(home+"/.ssh/authorized_keys", strings.Join(lines, "\n")+"\n", 0o600)
	require.NoError(n.t, os.Chown(n.Path(home+"/.ssh/authorized_keys"), n.id(uid), -1))
}

func (n *testNode) view(name string) view {
	n.t.Helper()
	v, err := n.kind.look(node.User{Name: name})
	require.NoError(n.t, err)
	return v
}

// calls returns the programs that have been run, and forgets them.
func (n *testNode) calls() []string {
	n.t.Helper()
	text := n.Get("/calls")
	_ = os.Remove(n.Path("/calls"))
	if text == "(missing)" {
		return nil
	}
	return strings.Split(strings.TrimSpace(text), "\n")
}

// snapshot is all that a user is made of on the node, and who owns it. The homes of accounts that come and go don't count.
func (n *testNode) snapshot(names ...string) string {
	n.t.Helper()
	var out strings.Builder
	for _, p := range []string{"/etc/passwd", "/etc/shadow", "/etc/group"} {
		fmt.Fprintf(&out, "%s\n", n.Get(p))
	}
	for _, name := range names {
		v := n.view(name)
		fmt.Fprintf(&out, "%s: %q %+v %+v\n", name, v.keys.Content, v.keys.File, v.keys.Dir)
	}
	entries, err := os.ReadDir(n.Path("/etc/sudoers.d"))
	require.NoError(n.t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(n.t, err)
		fmt.Fprintf(&out, "%s %s %s\n", e.Name(), info.Mode(), n.Get("/etc/sudoers.d/"+e.Name()))
	}
	return out.String()
}

func resource(u *node.User) *node.Resource {
	if u == nil {
		return nil
	}
	return &node.Resource{User: u}
}

func ask(was, desired *node.User) kind.Question {
	return kind.Question{
		Was: resource(was), Desired: resource(desired), Known: true, Rules: disruption.BuiltinRules(),
		Login: node.Login{Keys: []string{keyRefit}},
	}
}

func (n *testNode) plan(q kind.Question) kind.Answer {
	n.t.Helper()
	a, err := n.kind.Plan(context.Background(), q)
	require.NoError(n.t, err)
	return a
}

func change(q kind.Question, a kind.Answer) kind.Change {
	return kind.Change{Was: q.Was, Desired: q.Desired, Before: a.Before}
}

// make plans and makes, and requires that the node then shows it.
func (n *testNode) make(q kind.Question) kind.Answer {
	n.t.Helper()
	a := n.plan(q)
	require.Empty(n.t, a.Blocked)
	require.NotEmpty(n.t, a.Operation)
	_, err := n.kind.Make(context.Background(), change(q, a))
	require.NoError(n.t, err)
	n.shows(q)
	return a
}

// shows requires what the agent requires when it verifies a change.
func (n *testNode) shows(q kind.Question) {
	n.t.Helper()
	if q.Desired != nil {
		q.Was = q.Desired
	}
	a := n.plan(q)
	require.Empty(n.t, a.Drift)
	require.Empty(n.t, a.Operation)
	require.Empty(n.t, a.Blocked)
}
