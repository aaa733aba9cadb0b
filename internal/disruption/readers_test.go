package disruption

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// otherRows are rows of files, and of directories whose files are read whatever their names are, or are looked at elsewhere.
var otherRows = map[string]string{
	"/var/lib/kubelet/config.json": "a file", "/etc/containers/policy.json": "a file", RegistriesConf: "a file", "/etc/containerd/config.toml": "a file",
	"/etc/motd": "a file", "/etc/issue": "a file", "/etc/default/grub": "a file", "/etc/kernel/cmdline": "a file", "/etc/dracut.conf": "a file",
	"/etc/mkinitcpio.conf": "a file", "/etc/network/interfaces": "a file", "/etc/systemd/resolved.conf": "a file", "/etc/systemd/journald.conf": "a file",
	"/etc/kubernetes/audit-policy.yaml": "a file", "/etc/kubernetes/admission-config.yaml": "a file", "/etc/sudoers": "a file", "/etc/ssh/sshd_config": "a file",
	"/etc/systemd/system/containerd.service": "a file", "/etc/systemd/system/crio.service": "a file",
	"/etc/systemd/system": "by the rule: units and drop-ins", "/etc/systemd/system/containerd.service.d": "by the rule", "/etc/systemd/system/crio.service.d": "by the rule",
	KubeadmPatches:            "by the rule: patches of the kubelet's configuration",
	"/etc/containerd/certs.d": "hosts.toml names other files",
	"/etc/kernelstub":         "its program's",
	"/etc/initramfs-tools":    "directories of their own rules",
	"/etc/kubernetes/audit":   "the manifest names them", "/etc/kubernetes/admission": "the manifest names them",
	"/etc/kubernetes/credential-providers": "the kubelet's arguments name them",
	"/etc/ssh/sshd_config.d":               "on the node: sshd_config says Include",
	"/etc/containerd/conf.d":               "on the node: config.toml says imports",
	"/etc/network/interfaces.d":            "on the node: interfaces says source",
}

func TestEachDirectoryHasAReader(t *testing.T) {
	read := map[string]bool{}
	for _, r := range readers {
		read[r.dir] = true
	}
	for _, row := range Builtin() {
		require.True(t, read[row.Path] != (otherRows[row.Path] != ""), "%s: which names does its reader take?", row.Path)
	}
}

func TestSkippedByTheirNames(t *testing.T) {
	for p, want := range map[string]string{
		"/etc/sysctl.d/90-hardening":                  "systemd-sysctl reads only *.conf below /etc/sysctl.d: name it 90-hardening.conf",
		"/etc/sysctl.d/a/b.conf":                      "systemd-sysctl reads only *.conf below /etc/sysctl.d: name it b.conf",
		"/etc/sysctl.d/.a.conf":                       "systemd-sysctl reads only *.conf below /etc/sysctl.d: name it a-conf.conf",
		"/etc/sysctl.d/90.conf":                       "",
		"/usr/lib/sysctl.d/90":                        "systemd-sysctl reads only *.conf below /usr/lib/sysctl.d: name it 90.conf",
		"/etc/modules-load.d/x":                       "systemd-modules-load reads only *.conf below /etc/modules-load.d: name it x.conf",
		"/etc/modprobe.d/x":                           "modprobe reads only *.conf below /etc/modprobe.d: name it x.conf",
		"/etc/tmpfiles.d/x":                           "systemd-tmpfiles reads only *.conf below /etc/tmpfiles.d: name it x.conf",
		"/etc/udev/rules.d/x":                         "systemd-udevd reads only *.rules below /etc/udev/rules.d: name it x.rules",
		"/etc/systemd/journald.conf.d/x":              "systemd-journald reads only *.conf below /etc/systemd/journald.conf.d: name it x.conf",
		"/etc/netplan/x":                              "netplan reads only *.yaml below /etc/netplan: name it x.yaml",
		"/etc/netplan/x.yml":                          "netplan reads only *.yaml below /etc/netplan: name it x.yaml",
		"/etc/systemd/network/x":                      "systemd-networkd reads only *.network, *.netdev, *.link and their *.d/*.conf below /etc/systemd/network",
		"/etc/systemd/network/10.network.d/a.conf":    "",
		"/usr/local/share/ca-certificates/x.pem":      "update-ca-certificates reads only *.crt below /usr/local/share/ca-certificates: name it x.crt",
		"/usr/local/share/ca-certificates/ours/x.crt": "",
		"/etc/sudoers.d/ops.conf":                     "sudo reads only files with names without a dot, and without ~ at the end below /etc/sudoers.d: name it ops",
		"/etc/sudoers.d/ops~":                         "sudo reads only files with names without a dot, and without ~ at the end below /etc/sudoers.d: name it ops",
		"/etc/sudoers.d/a/ops":                        "sudo reads only files with names without a dot, and without ~ at the end below /etc/sudoers.d: name it ops",
		"/etc/sudoers.d/90-ops_x":                     "",
		"/etc/cron.d/ops.cron":                        "cron reads only files with names of letters, digits, _ and - below /etc/cron.d: name it ops",
		"/etc/cron.d/0ops":                            "",
		"/etc/logrotate.d/x.bak":                      "logrotate reads only files without such endings as .bak, .dpkg-old and ~ below /etc/logrotate.d: name it x",
		"/etc/logrotate.d/x.conf":                     "",
		"/etc/grub.d/40_x.dpkg-old":                   "grub-mkconfig reads only files without such endings as .dpkg-old and ~ below /etc/grub.d: name it 40_x",
		"/etc/NetworkManager/system-connections/x":    "",
		"/etc/NetworkManager/system-connections/x~":   "NetworkManager reads only files with names without a dot at the beginning and ~ or .bak at the end below /etc/NetworkManager/system-connections: name it x~.nmconnection",
		"/etc/kubernetes/manifests/.a.yaml":           "the kubelet reads only files with names without a dot at the beginning below /etc/kubernetes/manifests: name it a-yaml",
		"/etc/default/grub.d/50-x.conf":               "grub-mkconfig reads only *.cfg below /etc/default/grub.d: name it 50-x.cfg",
		"/etc/crio/policies/default":                  "CRI-O reads only *.json below /etc/crio/policies: name it default.json",
		"/etc/app/x":                                  "",
	} {
		t.Run(p, func(t *testing.T) {
			err := BuiltinRules().Skipped(p, func(string) bool { return false })
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, want)
		})
	}
	require.NoError(t, BuiltinRules().Skipped("/etc/cron.d/ops.cron", func(program string) bool { return program == "crond" }), "cronie reads it")
}

func TestOnlyUnsafeTakesTheCheckOfNamesAway(t *testing.T) {
	const p = "/etc/sysctl.d/90-hardening"
	entry := func(name string, unsafe bool) PolicyRules {
		return PolicyRules{Name: name, Rules: Rules{Files: Table{{Path: "/etc/sysctl.d", Actions: []Action{{Type: Reboot}}, Unsafe: unsafe}}}}
	}
	none := func(string) bool { return false }
	require.Error(t, Override(BuiltinRules(), entry("a", false)).Skipped(p, none))
	require.NoError(t, Override(BuiltinRules(), entry("a", true)).Skipped(p, none))
	require.Error(t, Override(BuiltinRules(), entry("a", true), entry("b", false)).Skipped(p, none), "the most careful counts")
	require.Error(t, Override(BuiltinRules(), entry("a", false), entry("b", true)).Skipped(p, none))
}
