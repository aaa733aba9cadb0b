//go:build e2e

package releases

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/release"
	"github.com/capi-refit/refit/internal/node"
)

// apts is where what is apt's and dpkg's is, and what staging may not touch.
var apts = []string{"/etc/apt", "/var/lib/apt", "/var/lib/dpkg", "/var/cache/apt", "/usr/bin/kube*"}

func (m *machine) aptSource() node.Source {
	m.t.Helper()
	return node.Source{Name: "inside", Version: target, Packages: &node.Packages{
		Manager: node.APT, PackageVersion: "{number}-*", Key: m.sh("cat /srv/repository/packages.asc"),
		Repository: "Types: deb\nURIs: http://127.0.0.1:8080/deb/\nSuites: ./\nSigned-By: {keyring}\n",
	}}
}

// debs are the packages that dpkg takes for installed, and the holds.
func (m *machine) debs() string {
	m.t.Helper()
	return m.sh(`dpkg-query --show --showformat='${Package} ${Version} ${Status}\n' kubeadm kubelet kubectl cri-tools 2>/dev/null || true; apt-mark showhold`)
}

// debsOf are the packages after kubeadm was installed, which has brought cri-tools for good. kubectl is not held.
func debsOf(version string) string {
	return "cri-tools 1.36.0-1.1 install ok installed\nkubeadm " + version + " hold ok installed\nkubectl " + version +
		" install ok installed\nkubelet " + version + " hold ok installed\nkubeadm\nkubelet"
}

func TestAPT(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "apt.sh")
	src := m.aptSource()
	held := m.debs()
	require.Contains(t, held, "kubelet 1.36.1-1.1 hold ok installed")

	m.run("what can't be used is refused", func(t *testing.T) {
		m.put("/etc/apt/apt.conf.d/99lax", []byte("APT::Get::AllowUnauthenticated \"true\";\nAcquire::AllowInsecureRepositories \"true\";\n"), "0644")
		defer m.sh("rm /etc/apt/apt.conf.d/99lax")
		all := m.state(apts...)
		bad := m.aptSource()
		bad.Packages.Key = m.sh("cat /srv/repository/somebody-else.asc")
		m.refused(bad, "NO_PUBKEY")
		bad = m.aptSource()
		bad.Packages.Repository = "deb http://127.0.0.1:8080/deb/ ./"
		m.refused(bad, "NO_PUBKEY")
		bad.Packages.Repository = "deb [trusted=yes] http://127.0.0.1:8080/deb/ ./"
		m.refused(bad, "need no signature")
		bad.Packages.Repository = "deb [trusted=0x1] http://127.0.0.1:8080/deb/ ./" // which apt takes for yes
		m.refused(bad, "need no signature")
		bad = m.aptSource()
		bad.Version = "v1.36.9"
		m.refused(bad, `no version of package kubeadm matches "1.36.9-*"`)
		bad.Version = "v1.36.4"
		m.refused(bad, `kubelet is of version "v1.36.3", not v1.36.4`)
		bad = m.aptSource()
		bad.Packages.Repository = "deb [signed-by={keyring}] http://127.0.0.1:8080/nothing/ ./"
		m.refused(bad, "does not have a Release file")
		require.Equal(t, all, m.state(apts...))
	})
	m.run("staging changes nothing that the node has", func(t *testing.T) {
		all, pid := m.state(apts...), m.kubelet()
		m.mustStage(src)
		require.Equal(t, all, m.state(apts...))
		require.Equal(t, pid, m.kubelet())
		require.Equal(t, &release.Release{Version: target, Kubeadm: release.Dir + "/v1.36.3/kubeadm"}, m.find(target))
		require.NotNil(t, m.find(before))
		require.Equal(t, target, m.sh(release.Dir+"/v1.36.3/kubeadm version -o short"))
		require.Empty(t, m.mustStage(src), "nothing is done twice")
	})
	m.run("kubeadm, with what it needs", func(t *testing.T) {
		m.mustInstall(target, "kubeadm")
		require.Equal(t, say(target, before, before), m.versions())
		require.Contains(t, m.debs(), "cri-tools 1.36.0-1.1 install ok installed")
		require.Contains(t, m.debs(), "kubeadm 1.36.3-1.1 hold ok installed")
	})
	m.run("kubelet and kubectl", func(t *testing.T) {
		m.mustInstall(target, "kubelet", "kubectl")
		require.Equal(t, say(target, target, target), m.versions())
		require.Equal(t, debsOf("1.36.3-1.1"), m.debs())
		require.Equal(t, "KUBELET_EXTRA_ARGS=--v=2", m.sh("cat /etc/default/kubelet"), "what was edited stays")
		require.Equal(t, "enabled", m.sh("systemctl is-enabled kubelet.service"))
		require.Contains(t, m.sh("cat /usr/lib/systemd/system/kubelet.service"), "Description=kubelet 1.36.3")
	})
	m.run("nothing is done twice", func(t *testing.T) {
		log := m.state("/var/log/dpkg.log", "/var/log/apt/history.log", "/var/lib/dpkg")
		m.mustInstall(target, "kubeadm", "kubelet", "kubectl")
		require.Equal(t, log, m.state("/var/log/dpkg.log", "/var/log/apt/history.log", "/var/lib/dpkg"))
	})
	m.run("there and back without the repository", func(t *testing.T) {
		m.sh("systemctl stop repository.service")
		m.mustInstall(before, "kubeadm", "kubelet", "kubectl")
		require.Equal(t, say(before, before, before), m.versions())
		require.Equal(t, debsOf("1.36.1-1.1"), m.debs())
		m.mustInstall(target, "kubeadm", "kubelet", "kubectl")
		require.Equal(t, debsOf("1.36.3-1.1"), m.debs())
		require.Equal(t, "KUBELET_EXTRA_ARGS=--v=2", m.sh("cat /etc/default/kubelet"))
	})
	for _, when := range []string{"before", "after"} {
		m.run("killed "+when+" the kubelet's files are replaced", func(t *testing.T) {
			m.mustInstall(before, "kubelet", "kubectl")
			m.killed(when)
			m.mustInstall(target, "kubelet", "kubectl")
			require.Equal(t, debsOf("1.36.3-1.1"), m.debs())
			require.Equal(t, say(target, target, target), m.versions())
			require.Empty(t, m.sh("dpkg --audit"))
		})
	}
	m.run("somebody else has dpkg, and leaves a package that can't be set up", func(t *testing.T) {
		m.put("/opt/broken/DEBIAN/control", []byte("Package: broken\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: it\n"), "0644")
		m.put("/opt/broken/DEBIAN/postinst", []byte("#!/bin/sh\nsleep 15\nexit 1\n"), "0755")
		m.sh("chmod 755 /opt/broken/DEBIAN && dpkg-deb --build /opt/broken && systemd-run --quiet --collect dpkg -i /opt/broken.deb")
		m.await("pgrep -f 'broken.postins[t]'")
		said, ok := m.install(before, "kubelet", "kubectl")
		require.True(t, ok, said)
		require.Contains(t, said, "another package of the node could not be set up")
		require.Contains(t, m.debs(), "kubelet 1.36.1-1.1 hold ok installed")
		m.sh("dpkg --purge broken")
		m.mustInstall(target, "kubelet", "kubectl")
		require.Equal(t, debsOf("1.36.3-1.1"), m.debs())
	})
	m.run("apt-daily downloads, whose lock apt-get does not wait for", func(t *testing.T) {
		m.put("/opt/hold.pl", []byte(`use Fcntl;
open(F, "+>>", "/var/cache/apt/archives/lock") or die;
my $lock = pack("ssx4qqix4", F_WRLCK, 0, 0, 0, 0);
fcntl(F, F_SETLK, $lock) or die;
open(G, ">", "/run/held") or die;
sleep 15;
`), "0644")
		m.sh("systemd-run --quiet --collect perl /opt/hold.pl")
		m.await("test -e /run/held")
		m.mustInstall(before, "kubelet", "kubectl")
		m.sh("! pgrep -f 'hold.p[l]'")
		require.Equal(t, debsOf("1.36.1-1.1"), strings.ReplaceAll(m.debs(), "kubeadm 1.36.3-1.1", "kubeadm 1.36.1-1.1"))
		m.mustInstall(target, "kubelet", "kubectl")
		require.Equal(t, debsOf("1.36.3-1.1"), m.debs())
	})
	m.run("prune", func(t *testing.T) {
		m.sh("/opt/release prune " + target)
		require.Nil(t, m.find(before))
		require.NotNil(t, m.find(target))
		require.Equal(t, "v1.36.3", m.sh("ls "+release.Dir))
		said, ok := m.install(before, "kubelet")
		require.False(t, ok)
		require.Contains(t, said, "it has to be staged first")
	})
}

// A node that was made with packages of a repository that it does not have (any more).
func TestAPTWithoutARepositoryOfItsOwn(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "apt.sh")
	m.sh("rm -r /etc/apt/sources.list.d/kubernetes.sources /var/lib/apt/lists/*")
	src := m.aptSource()
	src.Packages.Repository = "deb [signed-by={keyring}] file:/srv/repository/deb/ ./"
	require.Contains(t, m.mustStage(src), "the packages of v1.36.1 can't be had any more")
	m.sh("mv /srv/repository /srv/away")
	m.mustInstall(target, "kubeadm", "kubelet", "kubectl")
	require.Equal(t, debsOf("1.36.3-1.1"), m.debs())
	m.mustInstall(before, "kubeadm", "kubelet", "kubectl")
	require.Equal(t, say(before, before, before), m.versions())
	m.mustInstall(target, "kubeadm", "kubelet", "kubectl")
	require.Equal(t, say(target, target, target), m.versions())
	require.Equal(t, debsOf("1.36.3-1.1"), m.debs())
	require.Empty(t, m.sh("dpkg --verify kubeadm kubelet kubectl | grep -v ' c /etc/default/kubelet' || true"))
}

func TestAPTSources(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "apt.sh")
	for _, c := range []struct {
		name   string
		change func(src *node.Source)
	}{
		{"the node's own repository", func(src *node.Source) { src.Packages.Repository, src.Packages.Key = "", "" }},
		{"in a line", func(src *node.Source) {
			src.Packages.Repository = "deb [signed-by={keyring}] http://127.0.0.1:8080/deb/ ./"
		}},
		{"a directory", func(src *node.Source) {
			src.Packages.Repository = "Types: deb\nURIs: file:/srv/repository/deb/\nSuites: ./\nSigned-By: {keyring}\n"
		}},
		// What serves the repository is a proxy for any name that leads to it.
		{"by a proxy", func(src *node.Source) {
			src.Packages.Repository, src.Proxy = "deb [signed-by={keyring}] http://packages.invalid/deb/ ./", "http://127.0.0.1:8080"
		}},
	} {
		m.run(c.name, func(t *testing.T) {
			src := m.aptSource()
			c.change(&src)
			m.mustStage(src)
			require.Equal(t, target, m.sh(release.Dir+"/v1.36.3/kubeadm version -o short"))
			m.sh("/opt/release prune " + before)
		})
	}
}
