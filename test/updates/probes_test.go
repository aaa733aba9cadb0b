//go:build e2e

package updates

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
)

const (
	goodApp = `{"files":[{"path":"/opt/app/state","content":"good\n"}]}`
	badApp  = `{"files":[{"path":"/opt/app/state","content":"bad\n"}]}`
	newApp  = `{"files":[{"path":"/opt/app/state","content":"good again\n"}]}`
)

// TestProbesOfOnesOwn asks a service for what only its owner knows: it runs on, whatever it reads, and does not work.
func TestProbesOfOnesOwn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.sh(`mkdir -p /opt/app && printf '[Service]\nExecStart=/bin/sleep infinity\nExecStartPre=/bin/cp /opt/app/state /run/app-state\n' >/etc/systemd/system/app.service && systemctl daemon-reload`)
	m.sh(`printf '#!/bin/sh\ntest "$(id -u)" = 0 || exit 9\ngrep -q good /run/app-state || { echo "the app is not well, password=hunter2" >&2; exit 1; }\n' >/usr/local/bin/check-app && chmod 755 /usr/local/bin/check-app`)
	m.rules.Files = append(m.rules.Files, disruption.Rule{Path: "/opt/app", Actions: []disruption.Action{{Type: disruption.Restart, Unit: "app.service"}}})
	m.update(goodApp) // it is started by that
	m.sh("systemctl start app.service")
	m.rules.Probes = []disruption.Probe{
		{Name: "app", Exec: []string{"check-app"}, Timeout: 10 * time.Second, Retries: 2, From: "fleet"},
		{Name: "unit", Unit: "app.service", Timeout: 10 * time.Second, Retries: 2, From: "fleet"},
		{Name: "ssh", TCP: "127.0.0.1:22", Timeout: 10 * time.Second, Retries: 2, From: "fleet"},
		{Name: "nobody", TCP: "127.0.0.1:1", Timeout: time.Second, From: "fleet"},
	}
	m.update(newApp)
	m.run("what works before and not after is taken back", func(t *testing.T) {
		status := m.apply(m.request(badApp))
		require.Equal(t, "Failed", string(status.State), status.Message)
		require.Contains(t, status.Message, "probe app worked before and does not now: check-app: exit status 1: the app is not well, password=[redacted]")
		require.True(t, status.RolledBack, status.Message)
		require.Equal(t, "good again", m.sh("cat /run/app-state"))
		require.Equal(t, "active", m.sh("systemctl is-active app.service"))
	})
	m.run("what did not work before is noted", func(t *testing.T) {
		status := m.apply(m.request(goodApp))
		require.Equal(t, "Succeeded", string(status.State), status.Message)
		require.Len(t, status.Notes, 1)
		require.Contains(t, status.Notes[0], "probe nobody (")
		require.NotContains(t, status.Notes[0], "probe ssh")
	})
}
