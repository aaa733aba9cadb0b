package user

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

func TestBlocked(t *testing.T) {
	loginAsBob := func(q *kind.Question) { q.Login.User = "bob" }
	loginByGate := func(q *kind.Question) { q.Login = node.Login{User: "bob", Keys: []string{keyRefit}, Gate: true} }
	keysOfBob := func(keys ...string) *node.User { return with(bob(), func(u *node.User) { u.SSHAuthorizedKeys = keys }) }
	root := func(keys ...string) *node.User { return &node.User{Name: "root", SSHAuthorizedKeys: keys} }
	unlocked := with(bob(), func(u *node.User) { u.LockPassword = new(false) })
	tests := map[string]struct {
		was, desired *node.User
		ask          func(q *kind.Question)
		prepare      func(n *testNode)
		want         string // "" for not blocked
	}{
		"a name that leads elsewhere":     {desired: &node.User{Name: "../bob"}, want: "not a name that useradd accepts"},
		"a name that is an option":        {desired: &node.User{Name: "-o"}, want: "not a name that useradd accepts"},
		"a name that is an alias of sudo": {desired: &node.User{Name: "ALL"}, want: "not a name that useradd accepts"},
		"a group that is an option":       {desired: &node.User{Name: "carol", Groups: []string{"-x"}}, want: `"-x" is not a name for a group`},
		"a comment of two columns":        {desired: &node.User{Name: "carol", Gecos: "a:b"}, want: "gecos has a colon"},
		"a hash of two lines":             {desired: &node.User{Name: "carol", PasswordHash: "$6$x\nroot:"}, want: "the password's hash has a colon or a control character"},
		"a shell that is not there":       {desired: &node.User{Name: "carol", Shell: "/bin/zsh"}, want: "the shell /bin/zsh is not a program on the node"},
		"a key of two lines":              {desired: keysOfBob(keyAlice + "\n" + keyBob), want: "SSH key 1 is not one line"},
		"a key that is none":              {desired: keysOfBob(keyAlice, "ssh-ed25519 AAAA"), want: "SSH key 2 is not one line"},
		"no useradd": {
			desired: &node.User{Name: "carol"}, prepare: func(n *testNode) { n.remove("/usr/sbin/useradd") }, want: "the node has no useradd: install",
		},
		"no groupadd": {
			desired: with(bob(), func(u *node.User) { u.Groups = []string{"new"} }), prepare: func(n *testNode) { n.remove("/usr/sbin/groupadd") }, want: "no groupadd",
		},
		"no visudo": {
			desired: with(bob(), func(u *node.User) { u.Sudo = everything }), prepare: func(n *testNode) { n.remove("/usr/sbin/visudo") }, want: "no visudo: install the package sudo",
		},
		"a rule that sudo can't read": {desired: with(bob(), func(u *node.User) { u.Sudo = "BROKEN" }), want: "visudo does not accept the sudo rule"},
		"a rule of two lines":         {desired: with(bob(), func(u *node.User) { u.Sudo = everything + "\ncarol ALL=ALL" }), want: "more than one line"},
		"a rule that goes on":         {desired: with(bob(), func(u *node.User) { u.Sudo = everything + `\` }), want: "more than one line"},
		"a home of somebody else": {
			desired: &node.User{Name: "carol", HomeDir: "/home/bob"}, want: "/home/bob belongs to bob",
		},
		"no home for keys": {
			was: bob(), desired: keysOfBob(keyBob), prepare: func(n *testNode) { n.remove("/home/bob") }, want: "the home /home/bob does not exist",
		},
		"keys that are a link elsewhere": {
			was: bob(), desired: keysOfBob(keyBob), prepare: func(n *testNode) { n.link("/home/bob/.ssh/authorized_keys", "/etc/shadow") }, want: "not a regular file",
		},
		"a directory of keys that is a link elsewhere": {
			was: bob(), desired: keysOfBob(keyBob), prepare: func(n *testNode) { n.link("/home/bob/.ssh", "/root/.ssh") }, want: "/home/bob/.ssh is not a directory, or a link to one",
		},
		"a home to which no link leads that is followed": {
			was: bob(), desired: keysOfBob(keyBob), prepare: func(n *testNode) { n.link("/home/bob", "/home/bob") }, want: "too many symbolic links: put that right",
		},
		"keys under a second name": {
			was: bob(), desired: keysOfBob(keyBob), want: "has a second name",
			prepare: func(n *testNode) {
				n.keys("bob", keyAlice)
				require.NoError(n.t, os.Link(n.Path("/home/bob/.ssh/authorized_keys"), n.Path("/secret")))
			},
		},
		"more keys than can be": {
			was: bob(), desired: keysOfBob(keyBob), want: "larger than",
			prepare: func(n *testNode) { n.keys("bob", strings.Repeat("#", maxKeys)) },
		},
		"no rule for users": {
			desired: alice(), ask: func(q *kind.Question) { delete(q.Rules.Domains, disruption.Users) }, want: "no rule says what a change of Users takes",
		},
		"no rule for keys": {
			was: bob(), desired: keysOfBob(keyBob), ask: func(q *kind.Question) { delete(q.Rules.Domains, disruption.SSHKeys) }, want: "no rule says what a change of SSHKeys takes",
		},
		"no rule for users, and only keys": {
			was: bob(), desired: keysOfBob(keyBob), ask: func(q *kind.Question) { delete(q.Rules.Domains, disruption.Users) },
		},
		"root's password is not locked":       {desired: &node.User{Name: "root"}, prepare: func(n *testNode) { n.PutMode("/etc/shadow", "root:$6$root:1:0:99999:7:::\n", 0o600) }},
		"root's password is not to be locked": {desired: &node.User{Name: "root", LockPassword: new(true)}, prepare: func(n *testNode) { n.PutMode("/etc/shadow", "root:$6$root:1:0:99999:7:::\n", 0o600) }, want: "of root nothing but its SSH keys"},
		"root's shell":                        {desired: &node.User{Name: "root", Shell: "/bin/bash"}, want: "the shell differs"},
		"root is not expired":                 {desired: &node.User{Name: "root", Inactive: true}, want: "the expiry differs"},
		"root's keys, with the one by which refit comes in": {
			was: root(keyRefit), desired: root(keyRefit, keyAlice), prepare: func(n *testNode) { n.keys("root", keyRefit) },
		},
		"root's only key": {
			was: root(keyRefit), desired: root(keyAlice), prepare: func(n *testNode) { n.keys("root", keyRefit) }, want: "removing the only key by which refit comes in as root",
		},
		"root's keys, all of them": {
			was: root(keyRefit), prepare: func(n *testNode) { n.keys("root", keyRefit) }, want: "removing the only key",
		},
		"root's key, which somebody else's line has too": {
			was: root(keyRefit, keyAlice), desired: root(keyAlice), prepare: func(n *testNode) { n.keys("root", `from="10.0.0.0/8" `+keyAlice) },
		},
		"the login's only key": {
			was: keysOfBob(keyRefit), desired: keysOfBob(keyBob), ask: loginAsBob, prepare: func(n *testNode) { n.keys("bob", keyRefit) }, want: "removing the only key",
		},
		"the login's only key, which gets a command": {
			was: keysOfBob(keyRefit), desired: keysOfBob(`command="false" ` + keyRefit), ask: loginAsBob, prepare: func(n *testNode) { n.keys("bob", keyRefit) }, want: "removing the only key",
		},
		"the login's keys, one of which stays": {
			was: keysOfBob(keyRefit, keyBob), desired: keysOfBob(keyBob),
			ask:     func(q *kind.Question) { q.Login = node.Login{User: "bob", Keys: []string{keyBob, keyRefit}} },
			prepare: func(n *testNode) { n.keys("bob", keyRefit, keyBob) },
		},
		"the login's keys, with none of which refit comes in": {
			was: keysOfBob(keyAlice), desired: keysOfBob(keyBob), ask: loginAsBob, prepare: func(n *testNode) { n.keys("bob", keyAlice) },
		},
		"the login's keys, when it is not known by which refit comes in": {
			was: keysOfBob(keyAlice), desired: keysOfBob(keyBob), ask: func(q *kind.Question) { q.Login = node.Login{User: "bob"} },
			prepare: func(n *testNode) { n.keys("bob", keyAlice) }, want: "removing the only key",
		},
		"the login's only key, when it comes in by certificates": {
			was: keysOfBob(keyAlice), desired: keysOfBob(keyBob), prepare: func(n *testNode) { n.keys("bob", keyAlice) },
			ask: func(q *kind.Question) { q.Login = node.Login{User: "bob", Keys: []string{keyRefit}, Gate: true} },
		},
		"the login's only key, which is the authority of its certificates": {
			was: keysOfBob("cert-authority " + keyRefit), desired: keysOfBob(keyBob), prepare: func(n *testNode) { n.keys("bob", "cert-authority "+keyRefit) },
			ask: loginByGate, want: "removing the only key",
		},
		"the login's only key, which is bound to the gate no more": {
			was: keysOfBob(`command="gate" ` + keyRefit), desired: keysOfBob(keyRefit), prepare: func(n *testNode) { n.keys("bob", `command="gate" `+keyRefit) },
			ask: loginByGate, want: "removing the only key",
		},
		"the login gets a rule for the gate, by which it comes in": {
			was: with(unlocked, func(u *node.User) { u.Sudo = everything }), ask: loginByGate,
			desired: with(unlocked, func(u *node.User) { u.Sudo = "ALL=(root) NOPASSWD: /usr/local/sbin/refit-node gate" }),
		},
		"the login gets a rule for the gate, and comes in by a shell": {
			was: with(unlocked, func(u *node.User) { u.Sudo = everything }), ask: loginAsBob, want: "leave it without sudo for everything",
			desired: with(unlocked, func(u *node.User) { u.Sudo = "ALL=(root) NOPASSWD: /usr/local/sbin/refit-node gate" }),
		},
		"the login gets a rule for something else than the gate": {
			was: with(unlocked, func(u *node.User) { u.Sudo = everything }), ask: loginByGate, want: "leave it without sudo for refit-node gate",
			desired: with(unlocked, func(u *node.User) { u.Sudo = "ALL=(root) NOPASSWD: /bin/ls" }),
		},
		"another user's keys": {
			was: keysOfBob(keyRefit), desired: keysOfBob(keyBob), prepare: func(n *testNode) { n.keys("bob", keyRefit) },
		},
		"the login is removed":  {was: bob(), ask: loginAsBob, want: "refit logs in to the node as bob, and the change would lock it"},
		"the login is locked":   {was: unlocked, desired: bob(), ask: loginAsBob, want: "lock its password"},
		"the login expires":     {was: unlocked, desired: with(unlocked, func(u *node.User) { u.Inactive = true }), ask: loginAsBob, want: "make it expire"},
		"the login can't login": {was: unlocked, desired: with(unlocked, func(u *node.User) { u.Shell = "/usr/sbin/nologin" }), ask: loginAsBob, want: "a shell that lets nobody in"},
		"the login loses its group": {
			was: unlocked, desired: with(unlocked, func(u *node.User) { u.Groups = []string{"video"} }), ask: loginAsBob, want: "take it out of the group sudo, which sudo has a rule for",
		},
		"the login loses its rule": {
			was: with(unlocked, func(u *node.User) { u.Sudo = everything }), desired: unlocked, ask: loginAsBob, want: "leave it without sudo",
			prepare: func(n *testNode) { n.PutMode(cloudInitSudoers, cloudInitRules, 0o440) },
		},
		"the login needs a password": {
			was: with(unlocked, func(u *node.User) { u.Sudo = everything }), desired: with(unlocked, func(u *node.User) { u.Sudo = "ALL=(ALL) ALL" }), ask: loginAsBob,
			prepare: func(n *testNode) { n.PutMode(cloudInitSudoers, cloudInitRules, 0o440) }, want: "leave it without sudo",
		},
		"the login gets a rule that will do": {
			was: unlocked, desired: with(unlocked, func(u *node.User) { u.Sudo = "ALL = (ALL:ALL) NOPASSWD: ALL" }), ask: loginAsBob,
		},
		"the login gets another comment": {was: unlocked, desired: with(unlocked, func(u *node.User) { u.Gecos = "B" }), ask: loginAsBob},
		"the login was locked before":    {was: bob(), desired: with(bob(), func(u *node.User) { u.Gecos = "B" }), ask: loginAsBob},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if tc.prepare != nil {
				tc.prepare(n)
			}
			q := ask(tc.was, tc.desired)
			if tc.ask != nil {
				tc.ask(&q)
			}
			before := n.snapshot()
			a := n.plan(q)
			require.Equal(t, before, n.snapshot())
			if tc.want == "" {
				require.Empty(t, a.Blocked)
				return
			}
			require.Contains(t, a.Blocked, tc.want)
			require.NotContains(t, a.Blocked, "$6$")
			require.NotContains(t, a.Blocked, "AAAAC3")
			require.Empty(t, a.Operation)
		})
	}
}

func (n *testNode) remove(p string) {
	n.t.Helper()
	require.NoError(n.t, os.RemoveAll(n.Path(p)))
}

func TestKeysNoted(t *testing.T) {
	for name, tc := range map[string]struct{ config, want string }{
		"usual":     {config: "# AuthorizedKeysFile none\nAuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys2\n"},
		"elsewhere": {config: "authorizedkeysfile /etc/ssh/keys/%u\n", want: "sshd read keys from /etc/ssh/keys/%u"},
		"for some":  {config: "Match User x\nAuthorizedKeysFile /etc/ssh/keys/%u\n"},
		"included":  {config: "Include conf.d/*.conf\n", want: "sshd read keys from /etc/ssh/included/%u"},
		"after one": {config: "AuthorizedKeysFile .ssh/authorized_keys\nInclude /etc/ssh/conf.d/*.conf\n"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.PutMode("/etc/ssh/sshd_config", tc.config, 0o600)
			n.PutMode("/etc/ssh/conf.d/0.conf", "Match User x\n  AuthorizedKeysFile none\n", 0o600)
			n.PutMode("/etc/ssh/conf.d/1.conf", "AuthorizedKeysFile /etc/ssh/included/%u\n", 0o600)
			a := n.plan(ask(bob(), with(bob(), func(u *node.User) { u.SSHAuthorizedKeys = []string{keyBob} })))
			require.Contains(t, strings.Join(a.Notes, "\n"), tc.want)
			require.Equal(t, tc.want == "", len(a.Notes) == 0)
		})
	}
}

func TestAKeyThatGoesIsNotReadElsewhere(t *testing.T) {
	revoke := func() kind.Question {
		both := with(bob(), func(u *node.User) { u.SSHAuthorizedKeys = []string{keyBob, keyAlice} })
		return ask(both, with(bob(), func(u *node.User) { u.SSHAuthorizedKeys = []string{keyBob} }))
	}
	for name, tc := range map[string]struct {
		config, file, keys string
		blocked            bool
	}{
		"it is in another file":       {"Include conf.d/*\n", "/etc/ssh/keys/bob", keyAlice, true},
		"with options":                {"AuthorizedKeysFile .ssh/authorized_keys /etc/ssh/keys/%u\n", "/etc/ssh/keys/bob", "restrict " + keyAlice, true},
		"another one is":              {"AuthorizedKeysFile /etc/ssh/keys/%u\n", "/etc/ssh/keys/bob", keyRefit, false},
		"it is where nobody looks":    {"AuthorizedKeysFile .ssh/authorized_keys\n", "/etc/ssh/keys/bob", keyAlice, false},
		"it is in somebody else's":    {"AuthorizedKeysFile /etc/ssh/keys/%u\n", "/etc/ssh/keys/alice", keyAlice, false},
		"it is in a file of the home": {"AuthorizedKeysFile %h/keys\n", "/home/bob/keys", keyAlice, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.keys("bob", keyBob, keyAlice)
			n.PutMode("/etc/ssh/sshd_config", tc.config, 0o600)
			n.PutMode("/etc/ssh/conf.d/1.conf", "AuthorizedKeysFile=\"/etc/ssh/keys/%u\"\n", 0o600)
			n.Put(tc.file, tc.keys+"\n")
			a := n.plan(revoke())
			require.Equal(t, tc.blocked, strings.Contains(a.Blocked, "a key that the specs take away is also in "+tc.file), a.Blocked)
			require.NotContains(t, a.Blocked, "AAAAC3")
		})
	}
}

// TestActions tells keys from the rest: an operator can have another rule for them.
func TestActions(t *testing.T) {
	reload := disruption.Action{Type: disruption.Reload, Unit: "ssh.service"}
	restart := disruption.Action{Type: disruption.Restart, Unit: "nscd.service"}
	for name, tc := range map[string]struct {
		edit func(u *node.User)
		want []disruption.Action
	}{
		"keys":  {func(u *node.User) { u.SSHAuthorizedKeys = []string{keyBob} }, []disruption.Action{reload}},
		"shell": {func(u *node.User) { u.Shell = "/bin/bash" }, []disruption.Action{restart}},
		"both":  {func(u *node.User) { u.Shell, u.SSHAuthorizedKeys = "/bin/bash", []string{keyBob} }, []disruption.Action{reload, restart}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			q := ask(bob(), with(bob(), tc.edit))
			q.Rules.Domains[disruption.SSHKeys] = []disruption.Action{reload}
			q.Rules.Domains[disruption.Users] = []disruption.Action{restart}
			require.Equal(t, tc.want, n.plan(q).Actions)
		})
	}
}

// TestExchangedKeys is an attack: between planning and making, the user has the place of the keys lead elsewhere.
func TestExchangedKeys(t *testing.T) {
	for name, attack := range map[string]func(n *testNode){
		"the file":      func(n *testNode) { n.link("/home/bob/.ssh/authorized_keys", "/etc/shadow") },
		"the directory": func(n *testNode) { n.link("/home/bob/.ssh", "/etc") },
		"a pipe": func(n *testNode) {
			n.remove("/home/bob/.ssh/authorized_keys")
			n.dir("/home/bob/.ssh/authorized_keys", 1500)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.keys("bob", keyBob)
			q := ask(bob(), with(bob(), func(u *node.User) { u.SSHAuthorizedKeys = []string{keyAlice} }))
			a := n.plan(q)
			attack(n)
			before := n.Get("/etc/shadow")
			_, err := n.kind.Make(context.Background(), change(q, a))
			require.Error(t, err)
			require.Error(t, n.kind.Undo(context.Background(), change(q, a)))
			require.Equal(t, before, n.Get("/etc/shadow"))
			require.Equal(t, "(missing)", n.Get("/etc/authorized_keys"))
		})
	}
}
