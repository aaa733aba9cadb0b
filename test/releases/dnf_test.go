//go:build e2e

package releases

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/release"
	"github.com/capi-refit/refit/internal/node"
)

// dnfs is where what is dnf's is, and what staging may not touch. rpm's database is asked instead.
var dnfs = []string{"/etc/dnf", "/etc/yum.repos.d", "/usr/bin/kube*"}

func (m *machine) dnfSource() node.Source {
	m.t.Helper()
	return node.Source{Name: "inside", Version: target, Packages: &node.Packages{
		Manager: node.DNF, PackageVersion: "{number}-*", Key: m.sh("cat /srv/repository/packages.asc"),
		Repository: "[kubernetes]\nname=Kubernetes\nbaseurl=http://127.0.0.1:8080/rpm/\ngpgcheck=1\nrepo_gpgcheck=1\ngpgkey=file://{keyring}\n",
	}}
}

// rpms are the packages that rpm takes for installed, among them each key that it trusts, and the locks.
func (m *machine) rpms() string {
	m.t.Helper()
	return m.sh(`rpm -qa --qf '%{NAME} %{VERSION}-%{RELEASE}\n' | sed 's/^gpg-pubkey .*/gpg-pubkey/' | sort; grep '^[^#]' /etc/dnf/plugins/versionlock.list | sort`)
}

// rpmsOf are the packages after kubeadm was installed, which has brought cri-tools for good. kubectl is not locked.
func rpmsOf(version string) string {
	version += "-150500.1.1"
	return "cri-tools 1.36.0-150500.1.1\ngpg-pubkey\nkubeadm " + version + "\nkubectl " + version + "\nkubelet " + version +
		"\nshell 1-150500.1.1\nkubeadm-0:" + version + ".*\nkubelet-0:" + version + ".*"
}

func TestDNF(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "dnf.sh")
	src := m.dnfSource()
	require.Contains(t, m.rpms(), "kubelet-0:1.36.1-150500.1.1.*")

	m.run("what can't be used is refused", func(t *testing.T) {
		all := m.state(dnfs...) + m.rpms()
		bad := m.dnfSource()
		bad.Packages.Key = m.sh("cat /srv/repository/somebody-else.asc")
		// dnf keeps the keys of a repository by its address.
		bad.Packages.Repository = strings.Replace(bad.Packages.Repository, "127.0.0.1", "localhost", 1)
		m.refused(bad, "repomd.xml")
		bad.Packages.Repository = "[kubernetes]\nname=Kubernetes\nbaseurl=http://127.0.0.1:8080/rpm/\n"
		m.refused(bad, "not signed by a key that is trusted")
		bad = m.dnfSource()
		bad.Version = "v1.36.9"
		m.refused(bad, `no version of package kubeadm matches "1.36.9-*"`)
		bad = m.dnfSource()
		bad.Packages.Repository = "[kubernetes]\nname=Kubernetes\nbaseurl=http://127.0.0.1:8080/nothing/\n"
		m.refused(bad, "Cannot download repomd.xml")
		require.Equal(t, all, m.state(dnfs...)+m.rpms())
	})
	m.run("staging changes nothing that the node has", func(t *testing.T) {
		all, pid := m.state(dnfs...)+m.rpms(), m.kubelet()
		m.mustStage(src)
		require.Equal(t, all, m.state(dnfs...)+m.rpms())
		require.Equal(t, pid, m.kubelet())
		require.Equal(t, &release.Release{Version: target, Kubeadm: release.Dir + "/v1.36.3/kubeadm"}, m.find(target))
		require.NotNil(t, m.find(before))
		require.Empty(t, m.mustStage(src), "nothing is done twice")
	})
	m.run("kubeadm, with what it needs", func(t *testing.T) {
		m.mustInstall(target, "kubeadm")
		require.Equal(t, say(target, before, before), m.versions())
		require.Contains(t, m.rpms(), "cri-tools 1.36.0-150500.1.1")
		require.Contains(t, m.rpms(), "kubeadm-0:1.36.3-150500.1.1.*")
	})
	m.run("kubelet and kubectl", func(t *testing.T) {
		m.mustInstall(target, "kubelet", "kubectl")
		require.Equal(t, say(target, target, target), m.versions())
		require.Equal(t, rpmsOf("1.36.3"), m.rpms())
		require.Contains(t, m.sh("cat /usr/lib/systemd/system/kubelet.service"), "Description=kubelet 1.36.3")
	})
	m.run("nothing is done twice", func(t *testing.T) {
		all := m.sh("dnf history list --disablerepo='*'")
		m.mustInstall(target, "kubeadm", "kubelet", "kubectl")
		require.Equal(t, all, m.sh("dnf history list --disablerepo='*'"))
	})
	m.run("there and back without the repository", func(t *testing.T) {
		m.sh("systemctl stop repository.service && rm -r /var/cache/dnf")
		m.mustInstall(before, "kubeadm", "kubelet", "kubectl")
		require.Equal(t, say(before, before, before), m.versions())
		require.Equal(t, rpmsOf("1.36.1"), m.rpms())
		m.mustInstall(target, "kubeadm", "kubelet", "kubectl")
		require.Equal(t, rpmsOf("1.36.3"), m.rpms())
	})
	for _, when := range []string{"before", "after"} {
		m.run("killed "+when+" the kubelet's files are replaced", func(t *testing.T) {
			m.mustInstall(before, "kubelet", "kubectl")
			m.killed(when)
			m.mustInstall(target, "kubelet", "kubectl")
			require.Equal(t, rpmsOf("1.36.3"), m.rpms())
			require.Equal(t, say(target, target, target), m.versions())
			require.Empty(t, m.sh("rpm --verify --nodeps kubeadm kubelet kubectl"))
		})
	}
	m.run("prune", func(t *testing.T) {
		m.sh("/opt/release prune " + target)
		require.Nil(t, m.find(before))
		require.NotNil(t, m.find(target))
	})
}

// The repository has got a release since dnf asked it last.
func TestDNFFindsWhatIsNew(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "dnf.sh")
	index := `rm -r repodata; createrepo_c --quiet . && gpg --batch --quiet --local-user packages --armor --detach-sign repodata/repomd.xml`
	m.sh("cd /srv/repository/rpm && mkdir /srv/new && find . -name 'kube*-1.36.3-*' -exec mv {} /srv/new ';' && " + index)
	src := m.dnfSource()
	m.refused(src, `no version of package kubeadm matches "1.36.3-*"`)
	m.sh("cd /srv/repository/rpm && mv /srv/new/* . && " + index)
	m.mustStage(src)
}

// A node that was made with packages of a repository that it does not have (any more).
func TestDNFWithoutARepositoryOfItsOwn(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "dnf.sh")
	m.sh("rm -r /etc/yum.repos.d/kubernetes.repo /var/cache/dnf")
	src := m.dnfSource()
	src.Packages.Repository = "[kubernetes]\nname=Kubernetes\nbaseurl=file:///srv/repository/rpm\n"
	require.Contains(t, m.mustStage(src), "the packages of v1.36.1 can't be had any more")
	m.sh("mv /srv/repository /srv/away")
	m.mustInstall(target, "kubeadm", "kubelet", "kubectl")
	require.Equal(t, say(target, target, target), m.versions())
	m.mustInstall(before, "kubeadm", "kubelet", "kubectl")
	require.Equal(t, say(before, before, before), m.versions())
	m.mustInstall(target, "kubeadm", "kubelet", "kubectl")
	require.Equal(t, say(target, target, target), m.versions())
	require.Empty(t, m.sh("rpm --verify --nodeps kubeadm kubelet kubectl"))
}

func TestDNFSources(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "dnf.sh")
	for _, c := range []struct {
		name   string
		change func(src *node.Source)
	}{
		{"the node's own repository", func(src *node.Source) { src.Packages.Repository, src.Packages.Key = "", "" }},
		{"a directory", func(src *node.Source) {
			src.Packages.Repository = "[kubernetes]\nname=Kubernetes\nbaseurl=file:///srv/repository/rpm\n"
		}},
		{"one that leaves out what it is about", func(src *node.Source) { src.Packages.Repository += "exclude=kube*\n" }},
		// What serves the repository is a proxy for any name that leads to it.
		{"by a proxy", func(src *node.Source) {
			src.Packages.Repository = "[kubernetes]\nname=Kubernetes\nbaseurl=http://packages.invalid/rpm/\n"
			src.Proxy = "http://127.0.0.1:8080"
		}},
	} {
		m.run(c.name, func(t *testing.T) {
			src := m.dnfSource()
			c.change(&src)
			m.mustStage(src)
			require.Equal(t, target, m.sh(release.Dir+"/v1.36.3/kubeadm version -o short"))
			m.sh("/opt/release prune " + before)
		})
	}
}
