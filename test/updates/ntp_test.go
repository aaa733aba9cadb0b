//go:build e2e

package updates

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	oneServer  = `{"ntp":{"enabled":true,"servers":["192.0.2.1"]}}`
	twoServers = `{"ntp":{"enabled":true,"servers":["192.0.2.1","192.0.2.2"]}}`
	noNTP      = `{"ntp":{"enabled":false}}`
)

func TestTimesyncd(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	started := func() string {
		return m.sh("systemctl show --property=InvocationID --value systemd-timesyncd.service")
	}
	servers := func() string { return m.sh("timedatectl show-timesync --property=SystemNTPServers --value") }
	m.update(oneServer)
	require.Equal(t, "192.0.2.1", servers())
	before := started()
	m.update(twoServers)
	require.Equal(t, "192.0.2.1 192.0.2.2", servers())
	require.NotEqual(t, before, started(), "it was restarted")
	m.update(noNTP)
	require.Equal(t, "inactive", m.sh("systemctl is-active systemd-timesyncd.service || true"))
	require.Equal(t, "disabled", m.sh("systemctl is-enabled systemd-timesyncd.service || true"))
	m.update(oneServer)
	require.Equal(t, "active", m.sh("systemctl is-active systemd-timesyncd.service"))
	require.Equal(t, "enabled", m.sh("systemctl is-enabled systemd-timesyncd.service"))
	m.run("is rolled back to a node that keeps its time", func(t *testing.T) {
		// It can't be started with the second server, so to speak.
		m.sh(`mkdir -p /run/systemd/system/systemd-timesyncd.service.d && printf '[Service]\nExecCondition=\nExecStartPre=/bin/sh -c "! grep -rq 192.0.2.2 /etc/systemd/timesyncd.conf.d"\n' >/run/systemd/system/systemd-timesyncd.service.d/break.conf && systemctl daemon-reload`)
		m.fail(twoServers)
		require.Equal(t, "active", m.sh("systemctl is-active systemd-timesyncd.service"))
		require.Equal(t, "192.0.2.1", servers())
	})
	m.update(`{}`)
	require.Empty(t, servers())
}

func TestChrony(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.sh("dpkg --purge systemd-timesyncd && dpkg -i /opt/chrony/*.deb && echo 'DAEMON_OPTS=\"-F 1 -x\"' >/etc/default/chrony && sed -i 's/^pool .*/pool 192.0.2.9 iburst/' /etc/chrony/chrony.conf && systemctl restart chrony.service")
	original := m.sh("cat /etc/chrony/chrony.conf")
	sources := func() string {
		return m.sh("chronyc -n sources | grep -o '192\\.0\\.2\\.[0-9]*' | sort | tr '\\n' ' '")
	}
	require.Equal(t, "192.0.2.9", sources())
	m.update(oneServer)
	require.Equal(t, "192.0.2.1", sources())
	m.update(twoServers)
	require.Equal(t, "192.0.2.1 192.0.2.2", sources())
	m.update(noNTP)
	require.Equal(t, "inactive", m.sh("systemctl is-active chrony.service || true"))
	m.update(oneServer)
	require.Equal(t, "active", m.sh("systemctl is-active chrony.service"))
	m.update(`{}`)
	require.Equal(t, original, m.sh("cat /etc/chrony/chrony.conf"))
	require.Equal(t, "192.0.2.9", sources())
}

// TestATimeSourceThatIsLost has a node lose the only server that answers it.
func TestATimeSourceThatIsLost(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.sh("dpkg --purge systemd-timesyncd && dpkg -i /opt/chrony/*.deb && echo 'DAEMON_OPTS=\"-F 1 -x\"' >/etc/default/chrony && systemctl restart chrony.service")
	m.sh(`printf 'local stratum 8\nallow 127/8\nbindaddress 127.0.0.1\ncmdport 0\npidfile /run/time-server.pid\n' >/opt/time-server.conf && systemd-run --unit=time-server chronyd -x -d -u root -f /opt/time-server.conf`)
	m.update(`{"ntp":{"enabled":true,"servers":["127.0.0.1"]}}`)
	require.Eventually(t, func() bool { return m.sh("chronyc -c -n sources | cut -d, -f6") != "0" }, 2*time.Minute, time.Second, "it answers")
	status := m.fail(oneServer)
	require.Contains(t, status.Message, "a source of the time worked before and does not now")
}
