package effect

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
)

func newEffects(t *testing.T, files map[string]string) Effects {
	t.Helper()
	root := t.TempDir()
	for p, content := range files {
		at := filepath.Join(root, p)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(content), 0o600))
	}
	return Effects{Host: host.Host{Root: host.Root{Dir: root}, Disk: host.Disk{NoSync: true}}}
}

// TestTheSysctlThatCounts holds to sysctl.d(5) and to what systemd-sysctl does.
func TestTheSysctlThatCounts(t *testing.T) {
	const key = "net/ipv4/conf/eth0/rp_filter"
	kernel := map[string]string{
		"/proc/sys/net/ipv4/conf/eth0/rp_filter": "0\n", "/proc/sys/net/ipv4/conf/all/rp_filter": "0\n", "/proc/sys/net/ipv4/conf/eth0.1/rp_filter": "0\n",
	}
	for name, tc := range map[string]struct {
		files map[string]string
		key   string
		want  string // "": no file names it
		from  string
	}{
		"the later name":          {map[string]string{"/etc/sysctl.d/10.conf": "a.b=1", "/usr/lib/sysctl.d/20.conf": "a.b=2"}, "a/b", "2", "/usr/lib/sysctl.d/20.conf"},
		"the later line":          {map[string]string{"/etc/sysctl.d/10.conf": "a.b=1\na/b = 2 \n"}, "a/b", "2", "/etc/sysctl.d/10.conf"},
		"one name, /etc hides":    {map[string]string{"/etc/sysctl.d/10.conf": "a.b=1", "/run/sysctl.d/10.conf": "a.b=2", "/usr/lib/sysctl.d/10.conf": "a.b=3"}, "a/b", "1", "/etc/sysctl.d/10.conf"},
		"an empty file hides":     {map[string]string{"/etc/sysctl.d/10.conf": "", "/usr/lib/sysctl.d/10.conf": "a.b=3"}, "a/b", "", ""},
		"other names are none":    {map[string]string{"/etc/sysctl.d/10.conf~": "a.b=1", "/etc/sysctl.d/README": "a.b=1"}, "a/b", "", ""},
		"sysctl.conf is not read": {map[string]string{"/etc/sysctl.conf": "a.b=1"}, "a/b", "", ""},
		"comments":                {map[string]string{"/etc/sysctl.d/10.conf": "# a.b=1\n; a.b=2\na.b\n"}, "a/b", "", ""},
		"spaces and a dash":       {map[string]string{"/etc/sysctl.d/10.conf": "-a.b\t=\t1   2"}, "a/b", "1 2", "/etc/sysctl.d/10.conf"},
		"a pattern":               {map[string]string{"/etc/sysctl.d/10.conf": "net.ipv4.conf.*.rp_filter=2"}, key, "2", "/etc/sysctl.d/10.conf"},
		"a name before a pattern": {map[string]string{"/etc/sysctl.d/10.conf": "net.ipv4.conf.eth0.rp_filter=1", "/etc/sysctl.d/20.conf": "net.ipv4.conf.*.rp_filter=2"}, key, "1", "/etc/sysctl.d/10.conf"},
		"left out of a pattern":   {map[string]string{"/etc/sysctl.d/10.conf": "net.ipv4.conf.*.rp_filter=2\n-net.ipv4.conf.eth0.rp_filter"}, key, "", ""},
		"a dot in a name":         {map[string]string{"/etc/sysctl.d/10.conf": "net.ipv4.conf.eth0/1.rp_filter=2"}, "net/ipv4/conf/eth0.1/rp_filter", "2", "/etc/sysctl.d/10.conf"},
		"slashes":                 {map[string]string{"/etc/sysctl.d/10.conf": "net/ipv4/conf/eth0.1/rp_filter=2"}, "net/ipv4/conf/eth0.1/rp_filter", "2", "/etc/sysctl.d/10.conf"},
		"no way out":              {map[string]string{"/etc/sysctl.d/10.conf": "/../../etc/passwd=1"}, "etc/passwd", "1", "/etc/sysctl.d/10.conf"},
	} {
		t.Run(name, func(t *testing.T) {
			for p, content := range kernel {
				tc.files[p] = content
			}
			winners, err := newEffects(t, tc.files).sysctls()
			require.NoError(t, err)
			require.Equal(t, tc.want, winners[tc.key].value)
			require.Equal(t, tc.from, winners[tc.key].file)
		})
	}
}

func TestLinksAmongDropIns(t *testing.T) {
	e := newEffects(t, map[string]string{"/etc/sysctl.conf": "a.b=1", "/usr/lib/sysctl.d/50.conf": "c.d=1", "/etc/sysctl.d/10.conf": ""})
	require.False(t, e.readsSysctlConf())
	require.NoError(t, os.Symlink("../sysctl.conf", filepath.Join(e.Host.Dir, "/etc/sysctl.d/99-sysctl.conf")))
	require.NoError(t, os.Symlink("/dev/null", filepath.Join(e.Host.Dir, "/etc/sysctl.d/50.conf")))
	winners, err := e.sysctls()
	require.NoError(t, err)
	require.Equal(t, "1", winners["a/b"].value)
	require.NotContains(t, winners, "c/d", "a link to /dev/null hides it")
	require.True(t, e.readsSysctlConf())
}

func TestSameValue(t *testing.T) {
	require.True(t, sameValue("10", "0xa"))
	require.True(t, sameValue("4096 131072", "4096 131072"))
	require.False(t, sameValue("1", "0"))
	require.False(t, sameValue("a", "b"))
}

func TestConcerns(t *testing.T) {
	some, none := []disruption.Action{{Type: disruption.Restart, Unit: "a.service"}}, []disruption.Action{{Type: disruption.None}}
	for _, p := range []string{"/etc/sysctl.d/a.conf", "/etc/modules-load.d/a.conf", "/etc/systemd/journald.conf", "/etc/udev/rules.d/a.rules", "/etc/modprobe.d/a.conf", "/etc/default/grub"} {
		require.True(t, Concerns(p, some), p)
		require.False(t, Concerns(p, none), "nobody has asked for %s to be in effect", p)
	}
	require.True(t, Concerns("/etc/tmpfiles.d/a.conf", none))
	require.False(t, Concerns("/etc/motd", some))
}

func TestModulesByOtherNames(t *testing.T) {
	e := newEffects(t, map[string]string{
		"/proc/sys/kernel/osrelease": "6.1\n", "/lib/modules/6.1/modules.builtin": "kernel/fs/ext4/ext4.ko\n", "/sys/module/nf_conntrack/refcnt": "0\n",
		"/usr/sbin/modprobe": "#!/bin/sh\necho insmod /lib/modules/6.1/kernel/net/nf-conntrack.ko.xz # a fake\n",
	})
	require.False(t, e.loaded(t.Context(), "nf_conntrack_ipv4"))
	require.NoError(t, os.Chmod(filepath.Join(e.Host.Dir, "/usr/sbin/modprobe"), 0o755))
	require.True(t, e.loaded(t.Context(), "nf_conntrack_ipv4"), "an alias")
	require.True(t, e.loaded(t.Context(), "ext4"), "built into the kernel")
}
