//go:build e2e

package updates

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/test/nodes"
)

// bySocket has a socket of systemd's accept connections, and start an sshd for each, as Flatcar documents it: ssh.service does not run. The
// units are written here, since what Debian brings differs by its version.
func (m *machine) bySocket() {
	m.t.Helper()
	for name, text := range map[string]string{
		"ssh.socket": "[Socket]\nListenStream=22\nAccept=yes\nTriggerLimitIntervalSec=0\n[Install]\nWantedBy=sockets.target\n",
		"ssh@.service": "[Unit]\nCollectMode=inactive-or-failed\n" +
			"[Service]\nExecStart=-/usr/sbin/sshd -i\nStandardInput=socket\nKillMode=process\nRuntimeDirectory=sshd\nRuntimeDirectoryMode=0755\nRuntimeDirectoryPreserve=yes\n",
	} {
		require.NoError(m.t, m.node.WriteFile(m.t.Context(), "/etc/systemd/system/"+name, nodes.File{Content: []byte(text)}))
	}
	m.sh("systemctl daemon-reload && systemctl disable ssh.service && systemctl stop ssh.service && systemctl enable ssh.socket && systemctl start ssh.socket")
	m.agent = m.again()
	require.Equal(m.t, "inactive", m.sh("systemctl is-active ssh.service || true"))
	require.NotEmpty(m.t, m.sh("systemctl list-units --plain --no-legend 'ssh@*.service'"), "refit came in by the socket")
}

// TestTheWayInByASocketIsOpenedAgain is about an sshd that does not run until somebody comes: nothing is reloaded, and each connection has the
// configuration that is there by then.
func TestTheWayInByASocketIsOpenedAgain(t *testing.T) {
	t.Parallel()
	m := guarded(t)
	m.bySocket()
	m.update(sshFile("10-ok.conf", "MaxSessions 20\n"))
	m.requireComesIn()
	m.run("a configuration that sshd does not parse", func(t *testing.T) {
		require.Contains(t, m.fail(sshFile("05-bad.conf", "NoSuchOption yes\n")).Message, "sshd -t does not accept")
		m.requireComesIn()
	})
	m.run("nobody is allowed", func(t *testing.T) {
		status := m.fail(sshFile("05-closed.conf", "AllowUsers nobody\n"))
		require.Contains(t, status.Message, "confirm the way in failed: refit could not log in to the node any more; the files were put back")
		m.requireComesIn()
		m.sh("test ! -e /etc/ssh/sshd_config.d/05-closed.conf && test -e /etc/ssh/sshd_config.d/10-ok.conf && sshd -t")
	})
	require.Equal(t, "inactive", m.sh("systemctl is-active ssh.service || true"), "and nothing has started it")
}
