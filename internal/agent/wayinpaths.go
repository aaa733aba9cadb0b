package agent

// wayInPaths are files, and directories with all below them, that decide who comes in to a node. Too many do little harm: where one of them
// changes, refit logs in once more.
var wayInPaths = []string{
	// The SSH server, with the programs and cryptography that it uses.
	"/etc/ssh", "/usr/lib/ssh", "/usr/lib/ssh_config.d", "/usr/lib/sshd_config.d", "/usr/share/ssh", "/usr/share/openssh", "/usr/share/sshd_config.d",
	"/etc/default/ssh", "/etc/sysconfig/sshd", "/etc/sysconfig/ssh", "/etc/dropbear", "/etc/default/dropbear",
	"/usr/sbin/sshd", "/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/sftp-server",
	"/etc/crypto-policies", "/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf", "/etc/system-fips", "/etc/hosts.allow", "/etc/hosts.deny", "/etc/hosts.equiv", "/etc/shosts.equiv",
	// What is run by it: sudo and the gate.
	"/etc/sudoers", "/etc/sudoers.d", "/etc/sudo.conf", "/etc/sudo_logsrvd.conf", "/etc/sudo-ldap.conf", "/etc/doas.conf", "/usr/bin/sudo", "/usr/lib/sudo", "/usr/libexec/sudo",
	"/etc/refit", "/usr/local/sbin/refit-node",
	// PAM, and what its modules read.
	"/etc/pam.conf", "/etc/pam.d", "/usr/lib/pam.d", "/usr/share/pam", "/usr/share/pam-configs", "/etc/security", "/usr/lib/security", "/lib/security", "/lib64/security", "/usr/lib64/security",
	"/etc/login.defs", "/etc/login.access", "/etc/limits", "/etc/securetty", "/etc/shells", "/etc/nologin", "/run/nologin", "/var/run/nologin", "/etc/authselect", "/etc/google_authenticator",
	"/etc/krb5.conf", "/etc/krb5.conf.d", "/etc/krb5.keytab", "/etc/sssd", "/etc/nslcd.conf", "/etc/nscd.conf", "/etc/ldap", "/etc/ldap.conf", "/etc/openldap", "/etc/duo",
	// Accounts.
	"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid", "/etc/nsswitch.conf", "/etc/userdb", "/run/userdb", "/usr/lib/userdb",
	"/etc/sysusers.d", "/run/sysusers.d", "/usr/lib/sysusers.d", "/etc/adduser.conf", "/etc/default/useradd",
	// What a login shell and each program that it starts read.
	"/etc/profile", "/etc/profile.d", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zsh", "/etc/zshenv", "/etc/zshrc", "/etc/zprofile", "/etc/csh.cshrc", "/etc/csh.login", "/etc/fish",
	"/etc/environment", "/etc/environment.d", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/ld.so.cache", "/bin/sh", "/usr/bin/sh", "/bin/bash", "/usr/bin/bash", "/bin/dash", "/usr/bin/dash",
	"/etc/selinux", "/etc/apparmor", "/etc/apparmor.d", "/etc/fapolicyd", "/etc/ima", "/etc/audit",
	// The network, and the names in it.
	"/etc/netplan", "/run/netplan", "/usr/lib/netplan", "/etc/network", "/etc/networks", "/etc/default/networking", "/etc/NetworkManager", "/run/NetworkManager", "/usr/lib/NetworkManager",
	"/etc/systemd/network", "/run/systemd/network", "/usr/lib/systemd/network", "/lib/systemd/network", "/etc/systemd/networkd.conf", "/etc/systemd/networkd.conf.d",
	"/etc/systemd/resolved.conf", "/etc/systemd/resolved.conf.d", "/etc/sysconfig/network", "/etc/sysconfig/network-scripts", "/etc/conf.d/net", "/etc/dhcp", "/etc/dhcpcd.conf", "/etc/dhclient.conf",
	"/etc/iproute2", "/etc/wpa_supplicant", "/etc/frr", "/etc/bird", "/etc/bird.conf", "/etc/quagga", "/etc/keepalived", "/etc/wireguard", "/etc/openvpn", "/etc/ipsec.conf", "/etc/ipsec.d", "/etc/ipsec.secrets",
	"/etc/strongswan.conf", "/etc/strongswan.d", "/etc/swanctl", "/etc/tailscale", "/etc/default/tailscaled", "/etc/ppp", "/etc/ifplugd",
	"/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/gai.conf", "/etc/hostname", "/etc/machine-id",
	// The firewall.
	"/etc/nftables.conf", "/etc/nftables", "/etc/nftables.d", "/etc/sysconfig/nftables.conf", "/etc/iptables", "/etc/sysconfig/iptables", "/etc/sysconfig/ip6tables",
	"/etc/sysconfig/iptables-config", "/etc/sysconfig/ip6tables-config", "/etc/default/netfilter-persistent", "/var/lib/iptables", "/var/lib/ip6tables", "/etc/ipset", "/etc/ipset.conf", "/etc/ebtables", "/etc/arptables.conf",
	"/etc/ufw", "/etc/default/ufw", "/etc/firewalld", "/usr/lib/firewalld", "/etc/sysconfig/firewalld", "/etc/shorewall", "/etc/shorewall6", "/etc/ferm", "/etc/csf",
	"/etc/fail2ban", "/etc/sshguard", "/etc/sshguard.conf", "/etc/crowdsec", "/etc/denyhosts.conf",
	// What a boot comes up with: a node without its network card's module, or without a file system that it mounts, is not reached.
	"/etc/cloud", "/var/lib/cloud", "/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d", "/etc/modules", "/etc/modules-load.d", "/run/modules-load.d", "/usr/lib/modules-load.d",
	"/etc/udev", "/run/udev/rules.d", "/usr/lib/udev", "/lib/udev", "/etc/fstab", "/etc/crypttab", "/boot", "/efi", "/oem", "/usr/share/oem", "/etc/default/grub", "/etc/default/grub.d", "/etc/grub.d", "/etc/kernel/cmdline", "/etc/kernel/cmdline.d", "/etc/kernelstub",
	"/etc/dracut.conf", "/etc/dracut.conf.d", "/etc/initramfs-tools", "/etc/mkinitcpio.conf", "/etc/mkinitcpio.conf.d", "/etc/ignition", "/etc/init.d", "/etc/inittab", "/etc/rc.local", "/etc/rc.d",
	"/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/lib/tmpfiles.d",
	"/etc/systemd/system.conf", "/etc/systemd/system.conf.d", "/etc/systemd/logind.conf", "/etc/systemd/logind.conf.d", "/etc/systemd/system-preset", "/etc/systemd/system-generators",
}

// wayInDotFiles are files of a home, whosever it is, that decide who comes in to the account, and what a shell does that sshd has started.
var wayInDotFiles = []string{
	".profile", ".bashrc", ".bash_profile", ".bash_login", ".zshenv", ".zshrc", ".zprofile", ".cshrc", ".tcshrc", ".login", ".pam_environment", ".rhosts", ".shosts", ".k5login", ".k5users",
	".google_authenticator",
}

// wayInUnits are the units that sshd, a login, or the network are made by, and those that all others depend on, without the end of the name
// and without an instance. Those that begin so count, too: ssh is also for sshd@.service and ssh.socket, and network for network-online.target.
var wayInUnits = []string{
	"ssh", "dropbear", "systemd-networkd", "systemd-network", "systemd-resolved", "systemd-logind", "systemd-user-sessions", "systemd-userdbd", "systemd-homed",
	"systemd-udev", "systemd-modules-load", "systemd-tmpfiles", "systemd-sysusers",
	"NetworkManager", "networking", "network", "netplan", "wicked", "connman", "dhcpcd", "dhclient", "ifup", "wpa_supplicant", "wg-quick", "openvpn", "strongswan", "ipsec", "tailscaled", "keepalived", "frr", "bird",
	"nftables", "iptables", "ip6tables", "ipset", "netfilter-persistent", "ufw", "firewalld", "shorewall", "ferm", "fail2ban", "sshguard", "crowdsec", "denyhosts",
	"sssd", "nslcd", "nscd", "dbus", "polkit", "apparmor", "fapolicyd", "auditd", "cloud-init", "cloud-config", "cloud-final", "rc-local",
	"default.target", "multi-user.target.d", "basic.target", "sysinit.target", "local-fs", "sockets.target.d", "emergency", "rescue",
	// A drop-in for all units of a type, and what sessions run in.
	"service.d", "socket.d", "target.d", "slice.d", "scope.d", "mount.d", "user.slice", "user-.slice", "user@", "user-runtime-dir@", "system.slice", "-.slice", "session-",
}

// unitDirs have units, and what links to them.
var unitDirs = []string{
	"/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system", "/usr/local/lib/systemd/system", "/etc/systemd/system.control", "/run/systemd/transient",
}

// wayInCommands are what the text of a unit has in it that changes the firewall or the network, or that keeps sshd from running, whatever
// the unit is called.
var wayInCommands = []string{
	"iptables", "ip6tables", "nft ", "/nft", "ipset", "ufw", "firewall", "ssh", "nologin", "ip link", "ip addr", "ip route", "ip rule", "ifconfig", "ifdown", "nmcli", "networkctl", "netplan", "ethtool", "sysctl",
}

// sysctlDirs have settings of which some are the network's, or keep sshd from starting a process.
var sysctlDirs = []string{"/etc/sysctl.d", "/run/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d", "/usr/local/lib/sysctl.d", "/etc/sysctl.conf"}

// wayInSysctls are what such a setting has in it. A name can be a pattern.
var wayInSysctls = []string{"net", "*", "pid_max", "threads-max", "modules_disabled", "file-max", "nr_open", "user.max", "user/max"}
