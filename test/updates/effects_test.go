//go:build e2e

package updates

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// TestRowsInEffect has files of the built-in table come, change and fail, and looks each time at what the running system does with them.
// TestBuiltinRowsInEffect has each row come and go.
func TestRowsInEffect(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.sh("mount -o remount,rw /proc/sys")

	m.run("a kernel parameter comes, changes and goes", func(t *testing.T) {
		const key = "kernel.domainname"
		m.sh("sysctl -qw " + key + "=before.example")
		for _, value := range []string{"one.example", "two.example"} {
			m.update(spec(file("/etc/sysctl.d/90-row.conf", key+" = "+value+"\n")))
			require.Equal(t, value, m.sh("sysctl -n "+key))
		}
		m.update(spec())
		require.Equal(t, "before.example", m.sh("sysctl -n "+key))
	})
	m.run("one that the kernel lacks takes all back", func(t *testing.T) {
		m.sh("sysctl -qw kernel.domainname=before.example")
		status := m.fail(spec(file("/etc/sysctl.d/90-row.conf", "kernel.domainname = after.example\nkernel.refit_has_none = 1\n")))
		require.Contains(t, status.Message, "the kernel has no kernel.refit_has_none")
		require.Equal(t, "before.example", m.sh("sysctl -n kernel.domainname"))
	})
	m.run("another file counts", func(t *testing.T) {
		m.sh("echo kernel.domainname=other.example >/etc/sysctl.d/99-other.conf && systemctl restart systemd-sysctl.service")
		m.update(spec(file("/etc/sysctl.d/90-row.conf", "kernel.domainname = row.example\n")))
		require.Equal(t, "other.example", m.sh("sysctl -n kernel.domainname"))
		m.update(spec())
		require.Equal(t, "other.example", m.sh("sysctl -n kernel.domainname"))
		m.sh("rm /etc/sysctl.d/99-other.conf")
	})
	m.run("another file of sshd's counts", func(t *testing.T) {
		const ours = "/etc/ssh/sshd_config.d/90-row.conf"
		m.sh("echo MaxAuthTries 5 >/etc/ssh/sshd_config.d/50-other.conf && systemctl reload ssh.service")
		m.comesAndGoes(file(ours, "MaxAuthTries 4\nLoginGraceTime 60\n"), ours+" sets MaxAuthTries to 4, and another file, which counts, to 5: that is what sshd takes")
		m.sh("rm /etc/ssh/sshd_config.d/50-other.conf && systemctl reload ssh.service")
	})
	m.run("another file of journald's counts", func(t *testing.T) {
		const ours = "/etc/systemd/journald.conf.d/50-row.conf"
		m.sh("mkdir -p /etc/systemd/journald.conf.d && printf '[Journal]\\nMaxLevelStore=info\\n' >/etc/systemd/journald.conf.d/90-other.conf")
		m.comesAndGoes(file(ours, "[Journal]\nMaxLevelStore=debug\n"), ours+" sets MaxLevelStore to debug, and another file, which counts, to info: that is what systemd takes")
		m.sh("rm /etc/systemd/journald.conf.d/90-other.conf")
	})
	m.run("names that are resolved no more take all back", func(t *testing.T) {
		m.rules.Files = append(m.rules.Files, disruption.Rule{Path: "/etc/nsswitch.conf", Actions: []disruption.Action{{Type: disruption.None}}})
		m.sh("echo 192.0.2.7 corp.example >>/etc/hosts && echo search corp.example >>/etc/resolv.conf && getent ahosts corp.example")
		before := m.sh("cat /etc/nsswitch.conf")
		status := m.fail(spec(file("/etc/nsswitch.conf", strings.Replace(before, "files dns", "dns", 1)+"\n")))
		require.Contains(t, status.Message, "resolving corp.example worked before and does not now: it has no address")
		require.Equal(t, before, m.sh("cat /etc/nsswitch.conf"))
	})
	m.run("a module that there is not", func(t *testing.T) {
		m.fail(spec(file("/etc/modules-load.d/row.conf", "refit_has_none\n")))
		m.sh("test ! -e /etc/modules-load.d/row.conf")
	})
	m.run("what systemd-tmpfiles makes", func(t *testing.T) {
		m.update(spec(file("/etc/tmpfiles.d/row.conf", "d /run/refit-row 0750 root "+"root -\nL /run/refit-row-link - - - - /run/refit-row\n")))
		require.Equal(t, "750", m.sh("stat -c %a /run/refit-row"))
		require.Equal(t, "/run/refit-row", m.sh("readlink /run/refit-row-link"))
		m.update(spec())
		m.sh("test ! -e /run/refit-row && test ! -L /run/refit-row-link")
	})
	for path, lacks := range map[string]string{
		"/etc/dracut.conf.d/row.conf":                             "the node has no dracut",
		"/etc/dracut.conf":                                        "the node has no dracut",
		"/etc/mkinitcpio.conf":                                    "the node has no mkinitcpio",
		"/etc/kernelstub/configuration":                           "the node has no kernelstub",
		"/etc/netplan/50-row.yaml":                                "the node has no netplan",
		"/etc/NetworkManager/system-connections/row.nmconnection": "the node has no nmcli",
	} {
		m.run("nothing is written that nothing reads: "+path, func(t *testing.T) {
			require.Contains(t, m.blocked(spec(file(path, "x\n"))), lacks)
			m.sh("test ! -e " + path)
		})
	}
}

// comesAndGoes has a file come, of which the notes say something, and go.
func (m *machine) comesAndGoes(f, note string) {
	m.t.Helper()
	m.spec = spec(f)
	status := m.apply(m.request(m.spec))
	require.Equal(m.t, node.Succeeded, status.State, status.Message)
	require.Equal(m.t, []string{note}, status.Notes)
	m.update(spec())
}
