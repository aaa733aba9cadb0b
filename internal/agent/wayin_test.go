package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// onWayIn reports whether a change of a file, with some content, is on the way in.
func (n *testNode) onWayIn(p, content string) bool {
	w := work{
		Plan:     node.Plan{Changes: []node.Change{{Ref: node.FileRef(p), Operation: node.Write}}},
		Contents: map[string][]byte{p: []byte(content)},
	}
	return n.agent.wayIn(&w) != ""
}

func TestFilesOnTheWayIn(t *testing.T) {
	n := newTestNode(t)
	for what, paths := range map[string][]string{
		"who may come in": {
			"/etc/hosts.allow", "/etc/hosts.deny", "/etc/security/access.conf", "/etc/pam.conf", "/etc/nologin", "/etc/shells", "/etc/securetty", "/etc/login.access",
			"/etc/sysusers.d/x.conf", "/etc/krb5.conf.d/x", "/etc/ldap/ldap.conf", "/etc/doas.conf",
		},
		"with what": {"/etc/ssl/openssl.cnf", "/etc/crypto-policies/config", "/usr/sbin/sshd", "/usr/bin/sudo", "/usr/lib/security/pam_x.so", "/bin/sh"},
		"into which home": {
			"/home/refit/.bashrc", "/home/refit/.profile", "/var/lib/ops/.zshenv", "/root/.bash_profile", "/home/refit/.pam_environment", "/home/refit/.k5login", "/etc/environment.d/x.conf",
		},
		"by which network": {
			"/etc/systemd/network/x.network", "/etc/NetworkManager/conf.d/x", "/etc/netplan/x.yaml", "/etc/resolv.conf", "/etc/machine-id", "/etc/hostname", "/etc/keepalived/keepalived.conf",
			"/etc/ipsec.conf", "/etc/dhcp/dhclient.conf",
		},
		"through which firewall": {"/etc/nftables.conf", "/etc/iptables/rules.v4", "/etc/sysconfig/iptables-config", "/etc/ipset.conf", "/etc/shorewall/rules", "/etc/default/netfilter-persistent"},
		"after which boot": {
			"/etc/cloud/cloud.cfg.d/99.cfg", "/etc/cloud/cloud-init.disabled", "/etc/modprobe.d/blacklist.conf", "/etc/modules-load.d/k8s.conf", "/etc/modules", "/etc/udev/rules.d/70-net.rules",
			"/etc/udev/hwdb.d/x", "/etc/fstab", "/etc/crypttab", "/boot/grub/grub.cfg", "/etc/default/grub", "/etc/default/grub.d/x.cfg", "/etc/dracut.conf.d/x.conf", "/etc/rc.local", "/etc/init.d/x",
			"/etc/tmpfiles.d/sshd.conf", "/etc/systemd/system.conf.d/x.conf", "/etc/systemd/logind.conf", "/etc/systemd/system-preset/x.preset", "/lib/udev/rules.d/x",
		},
		"by which units": {
			"/etc/systemd/system/ssh.service.d/x.conf", "/etc/systemd/system/ssh.socket.d/x.conf", "/etc/systemd/system/sshd@.service.d/x.conf", "/etc/systemd/system/sshd.service",
			"/etc/systemd/system/systemd-networkd.service.d/x.conf", "/etc/systemd/system/firewalld.service.d/x.conf", "/etc/systemd/system/nftables.service.d/x.conf",
			"/etc/systemd/system/multi-user.target.wants/ssh.service", "/lib/systemd/system/ssh.service", "/usr/local/lib/systemd/system/ssh.socket", "/etc/systemd/system/service.d/x.conf",
			"/etc/systemd/system/default.target", "/etc/systemd/system/user-.slice.d/x.conf", "/etc/systemd/system/systemd-logind.service.d/x.conf", "/etc/systemd/system/cloud-init.service.d/x.conf",
			"/etc/systemd/system/dbus.service.d/x.conf", "/etc/systemd/system.control/ssh.service.d/x.conf",
		},
	} {
		for _, p := range paths {
			require.True(t, n.onWayIn(p, ""), "%s: %s", what, p)
		}
	}
	for _, p := range []string{
		"/etc/motd", "/etc/issue", "/etc/containerd/config.toml", "/etc/kubernetes/kubelet.conf.d/x.conf", "/etc/default/kubelet", "/etc/cron.d/x", "/etc/logrotate.d/x", "/etc/chrony/chrony.conf",
		"/etc/cloudy", "/etc/modprobe.disabled", "/etc/systemd/system/app.service", "/etc/systemd/system/kubelet.service.d/x.conf", "/etc/systemd/journald.conf", "/etc/apt/sources.list.d/x.list",
		"/opt/app/bashrc", "/usr/bin/app", "/bootstrap/x",
	} {
		require.False(t, n.onWayIn(p, "[Service]\nExecStart=/usr/bin/app\nAfter=network-online.target\n"), p)
	}
}

func TestWhatAFileHasInItOnTheWayIn(t *testing.T) {
	for p, tc := range map[string]map[string]bool{
		"/etc/sysctl.d/10.conf": {
			"net.ipv4.conf.all.rp_filter=1": true, "net/ipv6/conf/all/disable_ipv6=1": true, "*.disable_ipv6=1": true, "kernel.pid_max=301": true, "kernel.modules_disabled=1": true,
			"fs.file-max=10": true, "user.max_pid_namespaces=0": true, "vm.max_map_count=262144": false, "fs.inotify.max_user_watches=1": false,
		},
		"/etc/systemd/system/app.service": {
			"ExecStart=/usr/sbin/iptables -P INPUT DROP": true, "ExecStart=/usr/sbin/nft -f /etc/x": true, "Conflicts=ssh.service": true, "ExecStart=/sbin/ip link set eth0 down": true,
			"ExecStartPre=/bin/touch /etc/nologin": true, "ExecStart=/usr/bin/app --clip list": false,
		},
	} {
		for content, want := range tc {
			n := newTestNode(t)
			require.Equal(t, want, n.onWayIn(p, content), "%s: %s, as it is written", p, content)
			n.put(p, content)
			require.Equal(t, want, n.onWayIn(p, ""), "%s: %s, as it was before", p, content)
			n.put("/opt/elsewhere", "")
			n.delete(p)
			require.NoError(t, errors.Join(os.MkdirAll(filepath.Join(n.root, filepath.Dir(p)), 0o755), os.Symlink(p, filepath.Join(n.root, "/opt/link"))))
			n.put(p, "")
			require.Equal(t, want, n.onWayIn("/opt/link", content), "%s: %s, by a link to it", p, content)
		}
	}
}

// TestAnOriginalOnTheWayIn has a file be put back to what it was before refit.
func TestAnOriginalOnTheWayIn(t *testing.T) {
	const p = "/etc/sysctl.d/10.conf"
	n := newTestNode(t)
	require.NoError(t, n.agent.state.create())
	n.put(p, "net.ipv4.ip_forward=0\n")
	require.NoError(t, n.agent.state.originals().keep(n.agent.root, p))
	n.put(p, "vm.x=1\n")
	w := work{Plan: node.Plan{Changes: []node.Change{{Ref: node.FileRef(p), Operation: node.Restore}}}}
	require.NotEmpty(t, n.agent.wayIn(&w))
}

func TestUnitsOnTheWayIn(t *testing.T) {
	n := newTestNode(t)
	for unit, want := range map[string]bool{
		"ssh.service": true, "ssh.socket": true, "sshd@1.service": true, "systemd-networkd.socket": true, "firewalld.service": true, "nftables.service": true, "dbus.service": true, "keepalived.service": true,
		"systemd-logind.service": true, "user@1000.service": true, "system.slice": true,
		"kubelet.service": false, "containerd.service": false, "chrony.service": false, "systemd-sysctl.service": false, "systemd-timesyncd.service": false, "app.service": false,
	} {
		for _, c := range []node.Change{
			{Ref: node.Ref{Kind: node.UnitKind, Name: unit}},
			{Ref: node.FileRef("/etc/quiet/a"), Actions: []disruption.Action{{Type: disruption.Restart, Unit: unit}}},
		} {
			require.Equal(t, want, n.agent.wayIn(&work{Plan: node.Plan{Changes: []node.Change{c}}}) != "", "%s %v", unit, c)
		}
	}
}
