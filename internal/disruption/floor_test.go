package disruption

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFloor(t *testing.T) {
	do := func(t ActionType, unit ...string) []Action {
		a := Action{Type: t}
		if len(unit) > 0 {
			a.Unit = unit[0]
		}
		return []Action{a}
	}
	for name, tc := range map[string]struct {
		err    error
		misses string
	}{
		"nothing is built in":             {err: Floor("/etc/app", do(None))},
		"above what is built in":          {err: Floor("/etc/kubernetes", do(None))},
		"sshd neither told nor tested":    {Floor("/etc/ssh/sshd_config", do(None)), "Reload ssh.service, which the built-in rule for /etc/ssh/sshd_config has"},
		"a file below":                    {Floor("/etc/ssh/sshd_config.d/a.conf", do(None)), "Reload ssh.service"},
		"sshd by its other name":          {err: Floor("/etc/ssh/sshd_config.d", do(Reload, "sshd.service"))},
		"a restart instead":               {err: Floor("/etc/ssh/sshd_config", do(Restart, "ssh.service"))},
		"another unit":                    {Floor("/etc/ssh/sshd_config", do(Restart, "a.service")), "Reload ssh.service"},
		"a reboot":                        {err: Floor("/etc/sysctl.d", do(Reboot))},
		"a boot loader that is not made":  {Floor("/etc/default/grub.d", do(Reboot)), "RebuildBootloader"},
		"an initramfs that is not made":   {Floor("/etc/modprobe.d", do(Reboot)), "RebuildInitramfs"},
		"a trust store that is not made":  {Floor("/usr/local/share/ca-certificates", do(Reboot)), "TrustStoreUpdate"},
		"static pods by a reboot":         {err: Floor("/etc/kubernetes/audit-policy.yaml", do(Reboot))},
		"a network by a reboot":           {err: Floor("/etc/netplan", do(Reboot))},
		"a boot loader's replacement":     {err: Floor("/etc/default/grub", do(Replace))},
		"a replacement":                   {err: Floor("/etc/kubernetes/manifests", do(Replace))},
		"static pods":                     {Floor("/etc/kubernetes/audit-policy.yaml", do(None)), "StaticPodRefresh"},
		"static pods drained":             {Floor("/etc/kubernetes/manifests", do(Drain)), "StaticPodRefresh"},
		"without the drain":               {err: Floor("/etc/containerd/config.toml", do(Restart, "containerd.service"))},
		"the one runtime that there is":   {err: Floor("/usr/local/share/ca-certificates", append(do(TrustStoreUpdate), do(Restart, "containerd.service")...))},
		"no runtime":                      {Floor("/usr/local/share/ca-certificates", do(TrustStoreUpdate)), "Restart containerd.service"},
		"no trust":                        {Floor("/usr/local/share/ca-certificates", do(Restart, "crio.service")), "TrustStoreUpdate"},
		"what takes nothing":              {err: Floor("/etc/motd", do(None))},
		"sudoers":                         {err: Floor("/etc/sudoers.d", do(None))},
		"a unit":                          {FloorOfUnit("a.service", do(None)), "Restart the unit"},
		"a unit that is reloaded":         {err: FloorOfUnit("a.service", do(Reload, "b.service"))},
		"a unit that is never restarted":  {err: FloorOfUnit("user.slice", do(DaemonReload))},
		"a unit's drop-in":                {Floor("/etc/systemd/system/a.service.d", do(DaemonReload)), "Restart the unit"},
		"a drop-in of one that never is":  {err: Floor("/etc/systemd/system/user.slice.d/a.conf", do(DaemonReload))},
		"the kubelet's arguments":         {FloorOfDomain(KubeletArguments, do(None)), "Restart kubelet.service"},
		"time by another program":         {err: FloorOfDomain(NTP, do(Restart, "chrony.service"))},
		"a version that drains nothing":   {err: FloorOfDomain(KubernetesVersion, do(None))},
		"a control plane is waited for":   {err: FloorOfDomain(ControlPlane, do(None))},
		"keys, of which nothing is built": {err: FloorOfDomain(SSHKeys, do(None))},
	} {
		if tc.misses == "" {
			require.NoError(t, tc.err, name)
			continue
		}
		require.ErrorContains(t, tc.err, "it leaves out "+tc.misses, name)
		require.ErrorContains(t, tc.err, "unsafe: true", name)
	}
}

func TestBuiltinRulesAreNotBelowTheirOwnFloor(t *testing.T) {
	for _, r := range Builtin() {
		require.NoError(t, Floor(r.Path, r.Actions), r.Path)
	}
}

func TestPatchesOfKubeadm(t *testing.T) {
	actions, err := BuiltinRules().Actions("/etc/kubernetes/patches/kubeletconfiguration+merge.yaml")
	require.NoError(t, err)
	require.Equal(t, []Action{{Type: Restart, Unit: "kubelet.service"}}, actions)
	for _, p := range []string{"kube-apiserver.yaml", "kubeletconfiguration.txt", "x/kubeletconfiguration.yaml", "etcd+json.json"} {
		_, err := BuiltinRules().Actions("/etc/kubernetes/patches/" + p)
		require.ErrorContains(t, err, "is not a patch of kubeletconfiguration", p)
	}
	said := Override(BuiltinRules(), PolicyRules{Name: "p", Rules: Rules{Files: Table{{Path: KubeadmPatches, Actions: []Action{{Type: Reboot}}}}}})
	_, err = said.Actions("/etc/kubernetes/patches/kube-apiserver.yaml")
	require.NoError(t, err, "a policy can say it")
}

func TestAllowedPathsAreNotBelowTheFloor(t *testing.T) {
	for path, missing := range map[string]string{
		"/etc/ssh/sshd_config.d":             "leaves out Reload ssh.service, which the built-in rule for /etc/ssh/sshd_config.d has",
		"/etc/ssh/sshd_config.d/a.conf":      "leaves out Reload ssh.service",
		"/etc/ssh/sshd_config=Drain":         "leaves out Reload ssh.service",
		"/etc/default/grub.d=Reboot":         "leaves out RebuildBootloader",
		"/etc/default/grub=Reboot":           "leaves out RebuildBootloader",
		"/etc/modprobe.d=Reboot":             "leaves out RebuildInitramfs",
		"/etc/netplan":                       "leaves out NetworkReload",
		"/etc/systemd/system/a.service":      "leaves out Restart the unit",
		KubeadmPatches:                       "leaves out Restart kubelet.service",
		"/usr/local/share/ca-certificates/a": "leaves out TrustStoreUpdate",
	} {
		_, err := AllowPaths([]string{"/etc/app", path})
		require.ErrorContains(t, err, missing, path)
		require.ErrorContains(t, err, "unsafe: true", path)
	}
	_, err := AllowPaths([]string{"/etc", "/etc/motd", "/etc/motd=Reboot", "/etc/sysctl.d=Reboot", "/etc/netplan=Reboot", "/etc/sudoers.d", "/etc/containerd/certs.d=Drain"})
	require.NoError(t, err, "above what is built in, or no less than that")
}
