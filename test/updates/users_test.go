//go:build e2e

package updates

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func userSpec(users ...string) string {
	list := ""
	for i, u := range users {
		if i > 0 {
			list += ","
		}
		list += u
	}
	return `{"users":[` + list + `]}`
}

func TestUsers(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	first, second := newKey(t), newKey(t)
	alice := func(rest string) string { return `{"name":"alice"` + rest + `}` }
	keys := func(k string) string { return fmt.Sprintf(`,"sshAuthorizedKeys":[%q]`, k) }

	m.run("an account, with its key", func(t *testing.T) {
		m.update(userSpec(alice(`,"shell":"/bin/bash"` + keys(authorized(first)))))
		require.NoError(t, m.sshAs("alice", first))
		require.Error(t, m.sshAs("alice", second))
		require.Equal(t, "700 alice", m.sh("stat -c '%a %U' /home/alice/.ssh"))
		require.Equal(t, "600 alice", m.sh("stat -c '%a %U' /home/alice/.ssh/authorized_keys"))
	})
	m.run("a key that is revoked is refused", func(t *testing.T) {
		m.update(userSpec(alice(`,"shell":"/bin/bash"` + keys(authorized(second)))))
		require.Error(t, m.sshAs("alice", first))
		require.NoError(t, m.sshAs("alice", second))
	})
	m.run("shell, comment, groups, password", func(t *testing.T) {
		const hash = "$6$salt$IxDD3jeSOb5eB1CX5LBsqZFVkJdido3OUILO5Ifz5iwMuTS4XMS130MTSuDDl3aCI6WouIL9AjRbLCelDCy.g."
		m.update(userSpec(alice(fmt.Sprintf(`,"shell":"/bin/sh","gecos":"Alice A.","groups":"adm,users","lockPassword":false,"passwd":%q`, hash) + keys(authorized(second)))))
		require.Equal(t, "Alice A.:/home/alice:/bin/sh", m.sh("getent passwd alice | cut -d: -f5-"))
		require.Equal(t, hash, m.sh("getent shadow alice | cut -d: -f2"))
		require.Contains(t, m.sh("id -nG alice"), "adm")
		m.update(userSpec(alice(`,"shell":"/bin/bash","gecos":"Alice"` + keys(authorized(second)))))
		require.NotContains(t, m.sh("id -nG alice"), "adm")
	})
	m.run("sudo", func(t *testing.T) {
		m.update(userSpec(alice(`,"shell":"/bin/bash","gecos":"Alice","sudo":"ALL=(ALL) NOPASSWD:ALL"` + keys(authorized(second)))))
		require.Equal(t, "root", m.sh("su alice -c 'sudo -n whoami'"))
		m.sh("visudo -c -q")
		m.update(userSpec(alice(`,"shell":"/bin/bash","gecos":"Alice"` + keys(authorized(second)))))
		m.sh("! su alice -c 'sudo -n whoami' 2>/dev/null")
	})
	m.run("a rule that sudo does not parse changes nothing", func(t *testing.T) {
		m.blocked(userSpec(alice(`,"shell":"/bin/sh","gecos":"Alice","sudo":"ALL=(ALL NOPASSWD"` + keys(authorized(second)))))
		m.requireShown(m.spec)
		m.sh("visudo -c -q")
		require.Equal(t, "root", m.sh("su refit -c 'sudo -n whoami'"), "the way in stays")
	})
	m.run("an account that is inactive, and is so no more", func(t *testing.T) {
		m.update(userSpec(alice(`,"shell":"/bin/bash","gecos":"Alice","inactive":true` + keys(authorized(second)))))
		require.Error(t, m.sshAs("alice", second))
		m.update(userSpec(alice(`,"shell":"/bin/bash","gecos":"Alice"` + keys(authorized(second)))))
		require.NoError(t, m.sshAs("alice", second))
	})
	m.run("a key that somebody else has put there stays", func(t *testing.T) {
		other := newKey(t)
		m.sh(fmt.Sprintf("echo '%s' >>/home/alice/.ssh/authorized_keys", authorized(other)))
		m.update(userSpec(alice(`,"shell":"/bin/bash","gecos":"Alice"` + keys(authorized(first)))))
		require.NoError(t, m.sshAs("alice", other))
		require.Error(t, m.sshAs("alice", second))
	})
	m.run("an account that goes is locked, and keeps its home", func(t *testing.T) {
		m.update(userSpec())
		require.Error(t, m.sshAs("alice", first))
		m.sh("test -d /home/alice && getent passwd alice")
	})
	m.run("one that comes back", func(t *testing.T) {
		m.update(userSpec(alice(`,"shell":"/bin/bash","gecos":"Alice"` + keys(authorized(first)))))
		require.NoError(t, m.sshAs("alice", first))
	})
}

// TestAUserWithFiles brings an account and files that are its, in one update, and takes both back.
func TestAUserWithFiles(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	const carol = `"users":[{"name":"carol"}],"files":[{"path":"/opt/quiet/carol","content":"hers\n","owner":"carol:carol"}`
	m.run("are rolled back with the account", func(t *testing.T) {
		m.fail(`{` + carol + `,{"path":"/etc/systemd/system/demo.service.d/10.conf","content":"[Service]\nExecStartPre=/bin/false\n"}]}`)
		m.sh("! getent passwd carol && test ! -e /opt/quiet/carol")
	})
	m.run("come with it", func(t *testing.T) {
		m.update(`{` + carol + `]}`)
		require.Equal(t, "carol:carol", m.sh("stat -c '%U:%G' /opt/quiet/carol"))
	})
}

func TestUsersAreRolledBack(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	key := newKey(t)
	const breaks = `"files":[{"path":"/etc/systemd/system/demo.service.d/10.conf","content":"[Service]\nExecStartPre=/bin/false\n"}]`
	m.run("one that was added", func(t *testing.T) {
		m.fail(fmt.Sprintf(`{"users":[{"name":"bob","sudo":"ALL=(ALL) ALL","sshAuthorizedKeys":[%q]}],%s}`, authorized(key), breaks))
		require.Error(t, m.sshAs("bob", key))
		m.sh("! getent passwd bob")
		m.sh("visudo -c -q")
	})
	m.run("one that was changed", func(t *testing.T) {
		m.update(fmt.Sprintf(`{"users":[{"name":"bob","shell":"/bin/sh","sshAuthorizedKeys":[%q]}]}`, authorized(key)))
		passwd := m.sh("getent passwd bob; getent shadow bob; id bob; cat /home/bob/.ssh/authorized_keys")
		m.fail(fmt.Sprintf(`{"users":[{"name":"bob","shell":"/bin/bash","gecos":"B","groups":"adm","sudo":"ALL=(ALL) ALL"}],%s}`, breaks))
		require.Equal(t, passwd, m.sh("getent passwd bob; getent shadow bob; id bob; cat /home/bob/.ssh/authorized_keys"))
		require.NoError(t, m.sshAs("bob", key))
	})
	m.run("one that was removed", func(t *testing.T) {
		shadow := m.sh("getent shadow bob")
		m.fail("{" + breaks + "}")
		require.Equal(t, shadow, m.sh("getent shadow bob"))
		require.NoError(t, m.sshAs("bob", key))
	})
}

func TestTheWayInStaysOpen(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	key := m.login().Keys[0]
	m.sh(fmt.Sprintf("install -d -m 700 -o refit -g refit /home/refit/.ssh && echo '%s' >/home/refit/.ssh/authorized_keys && chown refit: /home/refit/.ssh/authorized_keys && chmod 600 /home/refit/.ssh/authorized_keys", key))
	m.sh("rm -f /etc/ssh/authorized_keys.d/refit")
	m.update(userSpec(fmt.Sprintf(`{"name":"refit","sudo":"ALL=(ALL) NOPASSWD:ALL","sshAuthorizedKeys":[%q]}`, key)))
	require.Contains(t, m.blocked(userSpec(`{"name":"refit","sudo":"ALL=(ALL) NOPASSWD:ALL"}`)), "the only key")
	m.blocked(userSpec())
	m.blocked(userSpec(fmt.Sprintf(`{"name":"refit","inactive":true,"sudo":"ALL=(ALL) NOPASSWD:ALL","sshAuthorizedKeys":[%q]}`, key)))
}
