//go:build e2e

package updates

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
)

// TestRowsInEffect has files of the built-in table come and go, and looks each time at what the running system does with them.
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
	m.run("journald reads its file", func(t *testing.T) {
		started := func() string { return m.sh("systemctl show -p InvocationID --value systemd-journald.service") }
		first := started()
		m.update(spec(file("/etc/systemd/journald.conf.d/row.conf", "[Journal]\nSystemMaxUse=64M\n")))
		second := started()
		require.NotEqual(t, first, second)
		m.update(spec())
		require.NotEqual(t, second, started())
	})
	m.run("resolved and udev, which a container has not running", func(t *testing.T) {
		m.update(spec(file("/etc/udev/rules.d/70-row.rules", "# nothing\n"), file("/etc/systemd/resolved.conf.d/row.conf", "[Resolve]\nDNSSEC=no\n")))
		m.update(spec())
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

// TestANetworkDeviceComesAndGoes is about the genuine systemd-networkd. A bridge of its own leaves the way in alone.
func TestANetworkDeviceComesAndGoes(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.sh("systemctl start systemd-networkd.service")
	m.update(spec(
		file("/etc/systemd/network/90-row.netdev", "[NetDev]\nName=row0\nKind=bridge\n"),
		file("/etc/systemd/network/90-row.network", "[Match]\nName=row0\n[Network]\nAddress=192.0.2.1/24\nConfigureWithoutCarrier=yes\nLinkLocalAddressing=no\n"),
	))
	require.Contains(t, m.sh("ip -4 addr show dev row0"), "192.0.2.1/24")
	m.update(spec())
	m.sh("test ! -e /sys/class/net/row0")
	m.requireComesIn()
}

// TestTheGenuineUpdateGrub has Debian's own program make the configuration. The machine is a container, so grub-probe is a fake that knows a
// disk, its kernel is an empty file, and nothing boots it.
func TestTheGenuineUpdateGrub(t *testing.T) {
	t.Parallel()
	m := newMachineWith(t, "grub2-common")
	m.rules.Files = append(m.rules.Files, disruption.Rule{Path: "/etc/default/grub.d", Actions: []disruption.Action{{Type: disruption.RebuildBootloader}}, From: "no-reboot"})
	m.sh(`probe=$(command -v grub-probe) && dpkg-divert --quiet --rename --add "$probe" && printf '%s\n' '#!/bin/sh' '# a fake' \
		'case "$*" in *fs_uuid*) echo 00000000-0000-0000-0000-000000000001;; *=fs*) echo ext2;; *device*) echo /dev/vda1;; *) echo;; esac' >"$probe" && chmod 755 "$probe"`)
	m.sh(`mkdir -p /boot/grub /etc/default/grub.d && : >/boot/vmlinuz-6.1.0-row && : >/boot/initrd.img-6.1.0-row && printf 'GRUB_TIMEOUT=0\nGRUB_CMDLINE_LINUX=""\n' >/etc/default/grub`)
	const path = "/etc/default/grub.d/50-row.cfg"
	m.update(spec(file(path, "GRUB_CMDLINE_LINUX=\"audit=1\"\n")))
	m.sh(`grep -E '^[[:space:]]*linux[[:space:]].*vmlinuz-6.1.0-row.* audit=1' /boot/grub/grub.cfg`)
	m.update(spec())
	m.sh(`test -s /boot/grub/grub.cfg && ! grep audit=1 /boot/grub/grub.cfg`)
}
