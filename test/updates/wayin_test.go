//go:build e2e

package updates

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/test/nodes"
)

// guarded is a machine whose firewall can be changed in place, and which is put back soon when refit can't come in.
func guarded(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t)
	m.rules.ConfirmWithin = disruption.MinConfirmWithin
	m.rules.Files = append(m.rules.Files,
		disruption.Rule{Path: "/etc/pam.d", Actions: []disruption.Action{{Type: disruption.None}}},
		disruption.Rule{Path: "/etc/nftables", Actions: []disruption.Action{{Type: disruption.Restart, Unit: "nftables.service"}}},
	)
	return m
}

func sshFile(name, content string) string {
	return fmt.Sprintf(`{"files":[{"path":"/etc/ssh/sshd_config.d/%s","content":%q,"owner":"root:root","permissions":"0644"}]}`, name, content)
}

// requireComesIn requires that refit comes in by a new connection, and that nothing watches over the node any more.
func (m *machine) requireComesIn() {
	m.t.Helper()
	require.NoError(m.t, m.fresh(func(c *remote.Client) error {
		_, err := c.Identity(m.t.Context())
		return err
	}))
	require.Empty(m.t, m.sh("ls /etc/systemd/system | grep refit-resume || true"))
	require.Empty(m.t, m.sh("ls /var/lib/refit/bin | grep refit-resume || true"))
}

func TestTheWayInIsOpenedAgain(t *testing.T) {
	t.Parallel()
	m := guarded(t)
	m.update(sshFile("10-ok.conf", "MaxSessions 20\n"))
	m.requireComesIn()
	for name, text := range map[string]string{
		"nobody is allowed":                     "AllowUsers nobody\n",
		"no keys are taken":                     "PubkeyAuthentication no\n",
		"only a group is, that it is not in":    "AllowGroups nobodys\n",
		"another command is forced, by a Match": "Match User refit\n  ForceCommand /bin/false\n",
	} {
		m.run(name, func(t *testing.T) {
			status := m.fail(sshFile("05-closed.conf", text))
			require.Contains(t, status.Message, "confirm the way in failed: refit could not log in to the node any more; the files were put back and ssh.service reloaded")
			m.requireComesIn()
			m.sh("test ! -e /etc/ssh/sshd_config.d/05-closed.conf && test -e /etc/ssh/sshd_config.d/10-ok.conf && sshd -t")
		})
	}
	m.run("sudo is taken away", func(t *testing.T) {
		m.update(`{}`)
		require.Contains(t, m.blocked(
			`{"files":[{"path":"/etc/sudoers.d/zz-closed","content":"refit ALL=(ALL) PASSWD: ALL\n","owner":"root:root","permissions":"0440"}]}`),
			"sudo would not let it become root without a password")
		require.Contains(t, m.fail(
			`{"files":[{"path":"/etc/pam.d/sudo","content":"auth required pam_deny.so\naccount required pam_deny.so\n","owner":"root:root","permissions":"0644"}]}`).Message,
			"could not log in")
		m.requireComesIn()
	})
	m.run("the network is cut", func(t *testing.T) {
		m.agent = m.again()
		// The machine has no nft. What its unit does here is as bad: no answer leaves it.
		require.NoError(t, m.node.WriteFile(t.Context(), "/etc/systemd/system/nftables.service", nodes.File{Content: []byte(
			"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh /etc/nftables/rules\nExecStop=/usr/sbin/ip route flush type blackhole\n")}))
		rules := func(text string) string {
			return fmt.Sprintf(`{"files":[{"path":"/etc/nftables/rules","content":%q,"owner":"root:root","permissions":"0644"}]}`, text)
		}
		m.update(rules("true\n"))
		gateway := m.sh("ip route | sed -n 's/^default via \\([^ ]*\\).*/\\1/p'")
		status := m.fail(rules("ip route add blackhole " + gateway + "\n"))
		require.Contains(t, status.Message, "the files were put back and nftables.service restarted")
		m.requireComesIn()
	})
}

func TestTheNodeIsPutBackByItself(t *testing.T) {
	t.Parallel()
	m := guarded(t)
	req := m.request(sshFile("05-closed.conf", "AllowUsers nobody\n"))
	req.WaitSeconds = 0
	_, err := m.agent.Apply(t.Context(), req)
	require.NoError(t, err)
	m.sh("for i in $(seq 120); do grep -q login-awaited /var/lib/refit/journal.jsonl && exit 0; sleep 0.5; done; exit 1")
	unit := m.sh("systemctl list-units --plain --no-legend 'refit-*-" + fmt.Sprint(req.Token) + ".service' | cut -d' ' -f1")
	require.True(t, strings.HasPrefix(unit, "refit-"), unit)
	m.run("where who works on it was killed", func(t *testing.T) {
		m.sh("systemctl kill -s KILL " + unit)
		m.sh("for i in $(seq 180); do test -e /var/lib/refit/run.json || exit 0; sleep 0.5; done; exit 1")
		m.sh("test ! -e /etc/ssh/sshd_config.d/05-closed.conf")
		m.requireComesIn()
	})
	m.run("and where the power is lost", func(t *testing.T) {
		m.token++
		req.Token = m.token
		_, err := m.agent.Apply(t.Context(), req)
		require.NoError(t, err)
		m.sh("for i in $(seq 120); do test $(grep -c login-awaited /var/lib/refit/journal.jsonl) = 2 && exit 0; sleep 0.5; done; exit 1")
		require.NoError(t, m.node.Restart(t.Context()))
		m.sh("for i in $(seq 240); do test -e /var/lib/refit/run.json || exit 0; sleep 0.5; done; exit 1")
		m.sh("test ! -e /etc/ssh/sshd_config.d/05-closed.conf")
		m.requireComesIn()
	})
}

func TestTheWayInThroughAGateIsOpenedAgain(t *testing.T) {
	t.Parallel()
	g := newGatedMachine(t)
	g.rules.ConfirmWithin = disruption.MinConfirmWithin
	g.connect = func() (remote.Conn, *remote.Client, error) {
		c, err := remote.SSHDialer{}.Dial(t.Context(), g.target(ways["by certificates, with sudo"], nil))
		if err != nil {
			return nil, nil, err
		}
		return c, g.client(c, g.signing), nil
	}
	g.agent = g.again()
	g.update(sshFile("20-ok.conf", "MaxSessions 20\n"))
	require.Contains(t, g.fail(sshFile("05-closed.conf", "TrustedUserCAKeys none\n")).Message, "refit could not log in to the node any more")
	require.Empty(t, g.sh("ls /var/lib/refit/gate /etc/systemd/system | grep refit-resume || true"))
	g.agent = g.again()
	g.update(quietFile("and on"))
}

func TestTheWayInIsOpenedAgainAfterAReboot(t *testing.T) {
	t.Parallel()
	m := guarded(t)
	m.rules.Files = append(m.rules.Files, disruption.Rule{Path: "/etc/ssh/sshd_config.d", Actions: []disruption.Action{{Type: disruption.Reboot}}})
	before := m.sh("cat /proc/1/stat")
	m.update(sshFile("10-ok.conf", "MaxSessions 20\n"))
	booted := m.sh("cat /proc/1/stat")
	require.NotEqual(t, before, booted)
	m.requireComesIn()
	require.Contains(t, m.fail(sshFile("05-closed.conf", "AllowUsers nobody\n")).Message,
		"refit could not log in to the node any more; the files were put back, and the node was rebooted with that")
	require.Equal(t, "2", m.sh(`grep -c '"step-done","step":"reboot"' /var/lib/refit/journal.jsonl`))
	require.Equal(t, "1", m.sh(`grep -c '"step-done","step":"reboot again"' /var/lib/refit/journal.jsonl`))
	m.requireComesIn()
}
