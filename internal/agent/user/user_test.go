package user

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const (
	keyRefit  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHPQU7/0U2tH8tHcE7uqDXbqVEJC95WlfhD8JLpQE7f2 refit"
	keyAlice  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE8NdwNwGAeiNi7jan7D5gkZiT00SVte6fmvFFt0VfX6 alice"
	keyAlice2 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOOH7iWgMQQFFZrwdddw7eKPPHE612znj/CrYPL5apag alice@laptop"
	keyBob    = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINhpRgUmk2ryBYJo7uW4UbrhTpxzLeCWUchxN+knvsqV bob"

	everything = "ALL=(ALL) NOPASSWD:ALL"
)

func alice() *node.User {
	return &node.User{
		Name: "alice", Gecos: "Alice of ops", Groups: []string{"sudo", "ops"}, Shell: "/bin/bash", PasswordHash: "$6$alice",
		Sudo: everything, SSHAuthorizedKeys: []string{keyAlice},
	}
}

// with returns a copy of a user that differs.
func with(u *node.User, edit func(*node.User)) *node.User {
	c := *u
	edit(&c)
	return &c
}

func bob() *node.User { return &node.User{Name: "bob"} }

func TestAddedUser(t *testing.T) {
	n := newNode(t)
	before := n.snapshot("alice")
	q := ask(nil, alice())
	a := n.make(q)
	require.Equal(t, node.Write, a.Operation)
	require.False(t, a.Conflict)
	require.Equal(t, []disruption.Action{{Type: disruption.None}}, a.Actions)
	require.Equal(t, []string{"user alice: the node does not have the groups ops, so they are made"}, a.Notes)
	require.Equal(t, []string{
		"visudo -cf /dev/stdin", // to plan, and to make
		"visudo -cf /dev/stdin",
		"groupadd ops",
		"useradd -m -G ops,sudo -c Alice of ops -s /bin/bash alice",
		"chpasswd -e",
	}, n.calls(), "no argument is a secret")
	is := n.view("alice").account
	require.Equal(t, "!$6$alice", is.Password, "locked, as cloud-init has it")
	require.Equal(t, []string{"ops", "sudo"}, is.Groups)
	require.Equal(t, "/home/alice", is.Home)
	require.Equal(t, sudoersAbout+"alice "+everything+"\n", n.Get("/etc/sudoers.d/90-refit-alice"))
	require.Equal(t, blockBegin+"\n"+blockAbout+"\n"+keyAlice+"\n"+blockEnd+"\n", n.Get("/home/alice/.ssh/authorized_keys"))
	for p, mode := range map[string]os.FileMode{
		"/home/alice/.ssh": 0o700 | os.ModeDir, "/home/alice/.ssh/authorized_keys": 0o600, "/etc/sudoers.d/90-refit-alice": 0o440,
	} {
		info, err := os.Stat(n.Path(p))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), p)
	}

	_, err := n.kind.Make(context.Background(), change(q, a))
	require.NoError(t, err)
	require.Empty(t, n.calls(), "the second time nothing is done")

	require.NoError(t, n.kind.Undo(context.Background(), change(q, a)))
	require.Equal(t, before, n.snapshot("alice"))
	require.DirExists(t, n.Path("/home/alice"), "somebody may have put something into it")
	require.NoError(t, n.kind.Undo(context.Background(), change(q, a)))
	require.Equal(t, before, n.snapshot("alice"))

	n.make(q)
	require.Contains(t, strings.Join(n.calls(), "\n"), " -u ", "the home's files are those of the number that the account had")
}

func TestAddedUserOfItsOwnKind(t *testing.T) {
	n := newNode(t)
	n.make(ask(nil, &node.User{Name: "carol", HomeDir: "/srv/carol", PrimaryGroup: "staff", LockPassword: new(false), PasswordHash: "$6$carol", Inactive: true}))
	require.Equal(t, []string{"groupadd staff", "useradd -m -d /srv/carol -g staff carol", "usermod -e 1 carol", "chpasswd -e"}, n.calls())
	is := n.view("carol").account
	require.Equal(t, []string{"$6$carol", "1", "staff"}, []string{is.Password, is.Expires, is.Primary})

	n.make(ask(nil, &node.User{Name: "video"}))
	require.Contains(t, n.calls()[0], "-g video ", "useradd makes no second group of that name")
}

func TestChangedUser(t *testing.T) {
	tests := map[string]struct {
		was, desired *node.User
		prepare      func(n *testNode)
		calls        []string // but for visudo
		check        func(t *testing.T, n *testNode)
		drift        []string
		conflict     bool
	}{
		"a shell": {
			was: bob(), desired: with(bob(), func(u *node.User) { u.Shell = "/bin/bash" }), calls: []string{"usermod -s /bin/bash bob"},
		},
		"a comment": {
			was: bob(), desired: with(bob(), func(u *node.User) { u.Gecos = "Bob B." }), calls: []string{"usermod -c Bob B. bob"},
		},
		"groups are those that are listed": {
			was: bob(), desired: with(bob(), func(u *node.User) { u.Groups = []string{"video"} }), calls: []string{"usermod -G video bob"},
		},
		"groups that are no longer listed are taken away": {
			was: with(bob(), func(u *node.User) { u.Groups = []string{"sudo"} }), desired: bob(), calls: []string{"usermod -G  bob"},
		},
		"the order of groups means nothing": {
			was:     with(bob(), func(u *node.User) { u.Groups = []string{"sudo", "video"} }),
			desired: with(bob(), func(u *node.User) { u.Groups = []string{"video", "sudo"} }), drift: []string{"groups"},
		},
		"a password": {
			was:     with(bob(), func(u *node.User) { u.LockPassword, u.PasswordHash = new(false), "$6$bob" }),
			desired: with(bob(), func(u *node.User) { u.LockPassword, u.PasswordHash = new(false), "$6$new" }), calls: []string{"chpasswd -e"},
			check: func(t *testing.T, n *testNode) { require.Equal(t, "$6$new", n.view("bob").account.Password) },
		},
		"a password that alice has changed stays when a key is changed": {
			was: with(bob(), func(u *node.User) { u.LockPassword, u.PasswordHash = new(false), "$6$first" }),
			desired: with(bob(), func(u *node.User) {
				u.LockPassword, u.PasswordHash, u.SSHAuthorizedKeys = new(false), "$6$first", []string{keyBob}
			}),
			check: func(t *testing.T, n *testNode) { require.Equal(t, "$6$bob", n.view("bob").account.Password) },
			drift: []string{"password"},
		},
		"a password of which the specs say nothing any more is none": {
			was:     with(bob(), func(u *node.User) { u.LockPassword, u.PasswordHash = new(false), "$6$bob" }),
			desired: with(bob(), func(u *node.User) { u.LockPassword = new(false) }), calls: []string{"usermod -p ! bob"},
		},
		"a lock": {
			was: with(bob(), func(u *node.User) { u.LockPassword = new(false) }), desired: bob(), calls: []string{"usermod -L bob"},
			check: func(t *testing.T, n *testNode) { require.Equal(t, "!$6$bob", n.view("bob").account.Password) },
		},
		"a new password that is locked was never one by which one logs in": {
			was:     with(bob(), func(u *node.User) { u.LockPassword = new(false) }),
			desired: with(bob(), func(u *node.User) { u.PasswordHash = "$6$new" }), calls: []string{"chpasswd -e"},
			check: func(t *testing.T, n *testNode) { require.Equal(t, "!$6$new", n.view("bob").account.Password) },
		},
		"an unlock": {
			was: bob(), desired: with(bob(), func(u *node.User) { u.LockPassword = new(false) }), calls: []string{"usermod -U bob"},
			prepare: func(n *testNode) { n.PutMode("/etc/shadow", "bob:!$6$bob:1:0:99999:7:::\n", 0o600) },
			check:   func(t *testing.T, n *testNode) { require.Equal(t, "$6$bob", n.view("bob").account.Password) },
		},
		"an unlock of what is locked twice": {
			was: bob(), desired: with(bob(), func(u *node.User) { u.LockPassword = new(false) }), calls: []string{"chpasswd -e"},
			prepare: func(n *testNode) { n.PutMode("/etc/shadow", "bob:!!$6$bob:1:0:99999:7:::\n", 0o600) },
			check:   func(t *testing.T, n *testNode) { require.Equal(t, "$6$bob", n.view("bob").account.Password) },
		},
		"no longer inactive": {
			was: with(bob(), func(u *node.User) { u.Inactive = true }), desired: bob(), calls: []string{"usermod -e  bob"},
			prepare: func(n *testNode) { n.PutMode("/etc/shadow", "bob:!:1:0:99999:7::1:\n", 0o600) },
		},
		"a rule of sudo that cloud-init has written": {
			was:     with(bob(), func(u *node.User) { u.Sudo = everything }),
			desired: with(bob(), func(u *node.User) { u.Sudo = "ALL=(ALL) ALL" }),
			prepare: func(n *testNode) { n.PutMode(cloudInitSudoers, cloudInitRules, 0o440) },
			check: func(t *testing.T, n *testNode) {
				require.Equal(t, "# Created by cloud-init\n\n\n# User rules for carol\ncarol "+everything+"\n", n.Get(cloudInitSudoers))
				require.Contains(t, n.Get("/etc/sudoers.d/90-refit-bob"), "\nbob ALL=(ALL) ALL\n")
			},
		},
		"a rule of sudo that is taken away": {
			was: with(bob(), func(u *node.User) { u.Sudo = everything }), desired: bob(),
			prepare: func(n *testNode) { n.PutMode(cloudInitSudoers, cloudInitRules, 0o440) },
			check: func(t *testing.T, n *testNode) {
				require.NotContains(t, n.Get(cloudInitSudoers), "bob")
				require.Equal(t, "(missing)", n.Get("/etc/sudoers.d/90-refit-bob"))
			},
		},
		"a key that is revoked, which bootstrap had laid down": {
			was:     with(bob(), func(u *node.User) { u.SSHAuthorizedKeys = []string{keyBob, keyAlice} }),
			desired: with(bob(), func(u *node.User) { u.SSHAuthorizedKeys = []string{keyBob} }),
			prepare: func(n *testNode) { n.keys("bob", "# mine", keyBob, keyAlice2, keyAlice) },
			check: func(t *testing.T, n *testNode) {
				require.Equal(t, "# mine\n"+keyAlice2+"\n"+blockOf([]string{keyBob}), n.Get("/home/bob/.ssh/authorized_keys"))
			},
		},
		"keys that are gone": {
			was: with(bob(), func(u *node.User) { u.SSHAuthorizedKeys = []string{keyBob} }), desired: bob(),
			prepare: func(n *testNode) { n.keys("bob", keyBob) },
			check:   func(t *testing.T, n *testNode) { require.Empty(t, n.Get("/home/bob/.ssh/authorized_keys")) },
		},
		"what somebody has changed too is a conflict": {
			was:     with(bob(), func(u *node.User) { u.Shell = "/usr/sbin/nologin" }),
			desired: with(bob(), func(u *node.User) { u.Shell = "/bin/bash" }), calls: []string{"usermod -s /bin/bash bob"}, conflict: true,
		},
		"a user that somebody has removed": {
			was: &node.User{Name: "carol"}, desired: &node.User{Name: "carol", Gecos: "C"}, conflict: true, calls: []string{"useradd -m -c C carol"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if tc.prepare != nil {
				tc.prepare(n)
			}
			if locks(*tc.was) && tc.prepare == nil && tc.was.Name == "bob" {
				n.PutMode("/etc/shadow", "bob:!$6$bob:1:0:99999:7:::\n", 0o600)
			}
			q := ask(tc.was, tc.desired)
			before := n.snapshot("bob")
			a := n.plan(q)
			require.Equal(t, before, n.snapshot("bob"), "planning changes nothing")
			require.Equal(t, tc.conflict, a.Conflict)
			require.Subset(t, a.Drift, tc.drift)
			if a.Operation == "" {
				require.Empty(t, tc.calls)
				return
			}
			_, err := n.kind.Make(context.Background(), change(q, a))
			require.NoError(t, err)
			require.Equal(t, tc.calls, withoutVisudo(n.calls()))
			made := n.plan(ask(tc.desired, tc.desired))
			require.Equal(t, a.Drift, made.Drift, "what had drifted is left alone")
			require.Empty(t, made.Operation)
			if tc.check != nil {
				tc.check(t, n)
			}
			if tc.desired.Name != "bob" {
				return
			}
			require.NoError(t, n.kind.Undo(context.Background(), change(q, a)))
			require.Equal(t, before, n.snapshot("bob"))
		})
	}
}

const cloudInitRules = "# Created by cloud-init\n\n# User rules for bob\nbob " + everything + "\n\n# User rules for carol\ncarol " + everything + "\n"

func withoutVisudo(calls []string) []string {
	var out []string
	for _, c := range calls {
		if !strings.HasPrefix(c, "visudo") {
			out = append(out, c)
		}
	}
	return out
}

func TestRemovedUser(t *testing.T) {
	n := newNode(t)
	n.keys("bob", keyBob, keyAlice2)
	n.PutMode(cloudInitSudoers, cloudInitRules, 0o440)
	before := n.snapshot("bob")
	q := ask(with(bob(), func(u *node.User) { u.SSHAuthorizedKeys, u.Sudo = []string{keyBob}, everything }), nil)
	a := n.make(q)
	require.Equal(t, node.Remove, a.Operation)
	require.Equal(t, []string{"usermod -e 1 -L bob"}, withoutVisudo(n.calls()))
	require.Equal(t, keyAlice2+"\n", n.Get("/home/bob/.ssh/authorized_keys"), "what is not refit's stays, and lets nobody in")
	require.NotContains(t, n.Get(cloudInitSudoers), "bob")
	require.NoError(t, n.kind.Undo(context.Background(), change(q, a)))
	require.Equal(t, before, n.snapshot("bob"))

	n.make(q)
	n.make(ask(nil, with(bob(), func(u *node.User) { u.LockPassword = new(false) })))
	is := n.view("bob").account
	require.Equal(t, []string{"$6$bob", ""}, []string{is.Password, is.Expires}, "who comes back can log in again")
}

func TestUserUnchanged(t *testing.T) {
	asCloudInit := func(n *testNode) {
		n.keys("bob", keyBob)
		n.PutMode(cloudInitSudoers, cloudInitRules, 0o440)
		n.PutMode("/etc/shadow", "bob:!$6$bob:1:0:99999:7:::\n", 0o600)
	}
	spec := with(bob(), func(u *node.User) {
		u.Gecos, u.Shell, u.Groups, u.PasswordHash, u.Sudo, u.SSHAuthorizedKeys = "Bob", "/bin/sh", []string{"sudo"}, "$6$bob", everything, []string{keyBob}
	})
	tests := map[string]struct {
		edit  func(n *testNode)
		drift []string
	}{
		"as bootstrap laid it down":     {edit: func(*testNode) {}},
		"touched":                       {edit: func(n *testNode) { n.keys("bob", "# somebody's", keyBob, keyAlice) }},
		"another password, not locked":  {edit: func(n *testNode) { n.PutMode("/etc/shadow", "bob:$6$other:1:0:99999:7:::\n", 0o600) }, drift: []string{"password", "lock"}},
		"expired":                       {edit: func(n *testNode) { n.PutMode("/etc/shadow", "bob:!$6$bob:1:0:99999:7::1:\n", 0o600) }, drift: []string{"expiry"}},
		"another shell and comment":     {edit: func(n *testNode) { n.passwd("bob", "Robert", "/bin/bash") }, drift: []string{"shell", "gecos"}},
		"another group":                 {edit: func(n *testNode) { n.Put("/etc/group", "root:x:0:\nbob:x:1500:\nsudo:x:27:\n") }, drift: []string{"groups"}},
		"a key less":                    {edit: func(n *testNode) { n.keys("bob", keyAlice) }, drift: []string{"keys"}},
		"a key with other options":      {edit: func(n *testNode) { n.keys("bob", `command="false" `+keyBob) }, drift: []string{"keys"}},
		"keys that sshd does not read":  {edit: func(n *testNode) { require.NoError(t, os.Chmod(n.Path("/home/bob/.ssh"), 0o777)) }, drift: []string{"keys"}},
		"keys that others read":         {edit: func(n *testNode) { require.NoError(t, os.Chmod(n.Path("/home/bob/.ssh/authorized_keys"), 0o644)) }, drift: []string{"keys"}},
		"another rule of sudo":          {edit: func(n *testNode) { n.PutMode(cloudInitSudoers, "bob ALL=(ALL) ALL\n", 0o440) }, drift: []string{"sudo"}},
		"the account is gone":           {edit: func(n *testNode) { n.Put("/etc/passwd", "root:x:0:0::/root:/bin/sh\n") }, drift: []string{"missing"}},
		"the keys are a link elsewhere": {edit: func(n *testNode) { n.link("/home/bob/.ssh/authorized_keys", "/etc/shadow") }, drift: []string{"keys"}},
		"somebody's own groups for root": {edit: func(n *testNode) {
			n.Put("/etc/group", "root:x:0:\nbob:x:1500:\nsudo:x:27:bob,root\nvideo:x:44:root\n")
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			asCloudInit(n)
			tc.edit(n)
			a := n.plan(ask(spec, spec))
			require.Equal(t, kind.Answer{Drift: tc.drift}, a)
		})
	}
	t.Run("unmanaged", func(t *testing.T) {
		n := newNode(t)
		require.Equal(t, kind.Answer{}, n.plan(ask(spec, &node.User{Name: "bob", Unmanaged: true})))
		require.Equal(t, kind.Answer{}, n.plan(ask(nil, nil)))
	})
	t.Run("without a record, what differs counts as changed", func(t *testing.T) {
		n := newNode(t)
		asCloudInit(n)
		q := ask(nil, spec)
		q.Known = false
		require.Equal(t, kind.Answer{}, n.plan(q))
		n.passwd("bob", "Bob", "/bin/bash")
		a := n.plan(q)
		require.Equal(t, node.Write, a.Operation)
		require.Empty(t, a.Drift)
	})
}

// passwd edits an account.
func (n *testNode) passwd(name, gecos, shell string) {
	n.t.Helper()
	var out strings.Builder
	for line := range strings.Lines(n.Get("/etc/passwd")) {
		if c := strings.Split(line, ":"); c[0] == name {
			line = strings.Join(append(c[:4], gecos, c[5], shell+"\n"), ":")
		}
		out.WriteString(line)
	}
	n.Put("/etc/passwd", out.String())
}

// link makes a symbolic link in the place of a file.
func (n *testNode) link(p, target string) {
	n.t.Helper()
	require.NoError(n.t, os.RemoveAll(n.Path(p)))
	require.NoError(n.t, os.MkdirAll(filepath.Dir(n.Path(p)), 0o755))
	require.NoError(n.t, os.Symlink(target, n.Path(p)))
}
