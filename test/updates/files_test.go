//go:build e2e

package updates

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
)

// file is an entry of spec.files.
func file(path, content string) string { return fmt.Sprintf(`{"path":%q,"content":%q}`, path, content) }

func spec(files ...string) string {
	list := ""
	for i, f := range files {
		if i > 0 {
			list += ","
		}
		list += f
	}
	return `{"files":[` + list + `]}`
}

func TestFiles(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	const dropIn = "/etc/systemd/system/demo.service.d/10-text.conf"
	text := func(s string) string { return file(dropIn, "[Service]\nEnvironment=DEMO_TEXT="+s+"\n") }

	m.run("a drop-in restarts its unit, and is reverted", func(t *testing.T) {
		m.update(spec(text("one")))
		require.Equal(t, "started one", m.sh("tail -n 1 /var/log/demo.log"))
		m.update(spec())
		require.Equal(t, "started", m.sh("tail -n 1 /var/log/demo.log"))
	})
	m.run("a unit that does not start is rolled back to one that does", func(t *testing.T) {
		m.update(spec(text("good")))
		status := m.fail(spec(file(dropIn, "[Service]\nExecStartPre=/bin/false\n")))
		require.Contains(t, status.Message, "demo.service")
		require.Equal(t, "active", m.sh("systemctl is-active demo.service"))
		require.Equal(t, "started good", m.sh("tail -n 1 /var/log/demo.log"))
	})
	m.run("a configuration that sshd does not parse never reaches it", func(t *testing.T) {
		status := m.fail(spec(text("good"), file("/etc/ssh/sshd_config.d/50-bad.conf", "NoSuchOption yes\n")))
		require.Contains(t, status.Message, "sshd -t does not accept")
		m.sh("sshd -t")
	})
	m.run("a new unit, and its end", func(t *testing.T) {
		unit := file("/etc/systemd/system/added.service", "[Service]\nExecStart=/bin/sleep infinity\n")
		m.update(spec(text("good"), unit))
		require.Equal(t, "active", m.sh("systemctl is-active added.service"))
		m.update(spec(text("good")))
		require.Equal(t, "inactive", m.sh("systemctl is-active added.service || true"))
	})
	m.run("sysctl", func(t *testing.T) {
		m.sh("mount -o remount,rw /proc/sys && sysctl -qw kernel.domainname=before.example")
		m.update(spec(text("good"), file("/etc/sysctl.d/90-domain.conf", "kernel.domainname=after.example\n")))
		require.Equal(t, "after.example", m.sh("sysctl -n kernel.domainname"))
		m.update(spec(text("good")))
	})
	m.run("the trust store", func(t *testing.T) {
		count := func() string { return m.sh("grep -c BEGIN /etc/ssl/certs/ca-certificates.crt") }
		before := count()
		m.update(spec(text("good"), file("/usr/local/share/ca-certificates/test.crt", testCA)))
		require.NotEqual(t, before, count())
		m.sh("openssl verify -CAfile /etc/ssl/certs/ca-certificates.crt /usr/local/share/ca-certificates/test.crt")
		m.update(spec(text("good")))
		require.Equal(t, before, count())
	})
	m.run("a full disk", func(t *testing.T) {
		m.sh("mkdir -p /opt/quiet && mount -t tmpfs -o size=64k tmpfs /opt/quiet")
		defer m.sh("umount /opt/quiet")
		big := make([]byte, 100<<10)
		for i := range big {
			big[i] = 'x'
		}
		status := m.fail(spec(text("changed"), file("/opt/quiet/big", string(big))))
		require.Contains(t, status.Message, "no space left on device")
		require.Equal(t, "started good", m.sh("tail -n 1 /var/log/demo.log"))
	})
}

// TestNewUnitsAreThereAfterAReboot has a unit come with a file, and go with it.
func TestNewUnitsAreThereAfterAReboot(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.rules.Files = append(m.rules.Files, disruption.Rule{Path: "/opt/boots", Actions: []disruption.Action{{Type: disruption.Reboot}}})
	const path, link = "/etc/systemd/system/lasting.service", "/etc/systemd/system/multi-user.target.wants/lasting.service"
	const service, install = "[Service]\nExecStart=/bin/sleep infinity\n", "[Install]\nWantedBy=multi-user.target\n"
	unit := file(path, service+install)
	state := func() string {
		return m.sh("systemctl is-enabled lasting.service; systemctl is-active lasting.service || true")
	}

	m.run("it is enabled, and started by the node that boots", func(t *testing.T) {
		m.update(spec(unit))
		require.Equal(t, "enabled\nactive", state())
		m.update(spec(unit, file("/opt/boots/a", "1\n")))
		require.Equal(t, "enabled\nactive", state())
	})
	m.run("what somebody disables stays disabled", func(t *testing.T) {
		m.sh("systemctl disable lasting.service")
		status := m.apply(m.request(spec(file(path, service+"Nice=1\n"+install), file("/opt/boots/a", "1\n"))))
		require.Equal(t, "Succeeded", string(status.State), status.Message)
		m.sh("test ! -L " + link)
		m.sh("systemctl enable lasting.service")
	})
	m.run("it is disabled when its file no longer says what for", func(t *testing.T) {
		m.update(spec(file(path, service), file("/opt/boots/a", "1\n")))
		m.sh("test ! -L " + link)
		require.Equal(t, "active", m.sh("systemctl is-active lasting.service"))
		m.update(spec(file("/opt/boots/a", "1\n")))
	})
	m.run("one that does not start leaves no link", func(t *testing.T) {
		m.fail(spec(file(path, service+"ExecStartPre=/bin/false\n"+install), file("/opt/boots/a", "1\n")))
		m.sh("test ! -e " + path + " && test ! -L " + link)
	})
	m.run("it goes with its file, and for good", func(t *testing.T) {
		m.update(spec(unit, file("/opt/boots/a", "1\n")))
		m.sh("test -L " + link)
		m.update(spec(file("/opt/boots/a", "1\n")))
		m.sh("test ! -L " + link)
		require.Equal(t, "inactive", m.sh("systemctl is-active lasting.service || true"))
	})
	m.run("a unit that the node has is left as it is", func(t *testing.T) {
		m.sh("printf '" + `[Service]\nExecStart=/bin/sleep 1000000\n[Install]\nWantedBy=multi-user.target\n` + "' >" + path + " && systemctl daemon-reload")
		m.update(spec(unit, file("/opt/boots/a", "1\n")))
		m.sh("test ! -L " + link)
	})
}

func TestWhatBecomesOfAFailure(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	const dropIn = "/etc/systemd/system/demo.service.d/10-text.conf"
	bad := spec(file(dropIn, "[Service]\nExecStartPre=/usr/bin/test -e /opt/cause-is-gone\n"))
	m.run("stop: it stays as it is, and is made good when the cause is gone", func(t *testing.T) {
		m.rules.OnFailure = disruption.StopOnFailure
		status := m.apply(m.request(bad))
		require.False(t, status.RolledBack)
		require.Contains(t, status.Message, "as the policy says")
		m.sh("test -e " + dropIn)
		m.sh("touch /opt/cause-is-gone")
		status = m.apply(m.request(bad))
		require.Equal(t, "Succeeded", string(status.State), status.Message)
		require.Equal(t, "active", m.sh("systemctl is-active demo.service"))
	})
}
