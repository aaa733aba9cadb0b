//go:build e2e

package releases

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/release"
	"github.com/capi-refit/refit/internal/node"
)

const link = "readlink /etc/extensions/kubernetes.raw"

func (m *machine) sysextSource(version string) node.Source {
	m.t.Helper()
	name := "kubernetes-" + version + ".raw"
	sum, _, _ := strings.Cut(m.sh("sha256sum /srv/repository/"+name), " ")
	return node.Source{
		Name: "inside", Version: version,
		SystemExtension: &node.SystemExtension{Name: "kubernetes", URL: "http://127.0.0.1:8080/kubernetes-{version}.raw"},
		Checksums:       []node.Checksum{{Name: name, Architecture: runtime.GOARCH, SHA256: sum}},
	}
}

func TestSystemExtensions(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "sysext.sh")
	src := m.sysextSource(target)
	require.Equal(t, say(before, before, before), m.versions())

	m.run("what can't be used is refused", func(t *testing.T) {
		bad := m.sysextSource("v1.36.4")
		m.refused(bad, `kubeadm is of version "v1.36.3", not v1.36.4`)
		bad = m.sysextSource(target)
		bad.Checksums[0].SHA256 = strings.Repeat("0", 64)
		m.refused(bad, "it is not used")
		bad = m.sysextSource(target)
		bad.SystemExtension.Name = "another"
		m.refused(bad, "the node has no /etc/extensions/another.raw")
	})
	m.run("staging changes nothing that the node has", func(t *testing.T) {
		pid := m.kubelet()
		m.mustStage(src)
		require.Equal(t, "/opt/extensions/kubernetes-v1.36.1.raw", m.sh(link))
		require.Equal(t, say(before, before, before), m.versions())
		require.Equal(t, pid, m.kubelet())
		require.Equal(t, &release.Release{Version: target, Kubeadm: release.Dir + "/v1.36.3/kubeadm", Extension: true}, m.find(target))
		require.Equal(t, &release.Release{Version: before, Extension: true}, m.find(before))
		require.Equal(t, target, m.sh(release.Dir+"/v1.36.3/kubeadm version -o short"), "it came out of the image")
	})
	m.run("all programs at once", func(t *testing.T) {
		m.mustInstall(target, "kubeadm")
		require.Equal(t, say(target, target, target), m.versions())
		require.Equal(t, release.Dir+"/v1.36.3/kubernetes.raw", m.sh(link))
		require.Contains(t, m.sh("systemd-sysext status --no-legend"), "kubernetes")
		mounts := m.sh("findmnt --noheadings --output ID /usr")
		m.mustInstall(target, "kubelet", "kubectl")
		require.Equal(t, mounts, m.sh("findmnt --noheadings --output ID /usr"), "nothing is done twice")
		m.sh("systemctl daemon-reload && systemctl restart kubelet.service")
		require.Equal(t, "kubelet 1.36.3", m.sh("systemctl show --property Description --value kubelet.service"))
	})
	m.run("back, and there again, without a server", func(t *testing.T) {
		m.sh("systemctl stop repository.service")
		m.mustInstall(before, "kubelet")
		require.Equal(t, say(before, before, before), m.versions())
		require.Equal(t, "/opt/extensions/kubernetes-v1.36.1.raw", m.sh(link))
		m.mustInstall(target, "kubelet")
		require.Equal(t, say(target, target, target), m.versions())
		m.sh(". /opt/programs.sh; served")
	})
	m.run("prune", func(t *testing.T) {
		m.sh("/opt/release prune")
		require.Nil(t, m.find(before))
		require.NotNil(t, m.find(target), "the node uses it")
	})
	m.run("one that systemd-sysext does not merge", func(t *testing.T) {
		other := m.sysextSource("v1.36.5")
		m.mustStage(other)
		said, ok := m.install("v1.36.5", "kubelet")
		require.False(t, ok)
		require.Contains(t, said, "is it for this system")
		require.Equal(t, release.Dir+"/v1.36.3/kubernetes.raw", m.sh(link), "what the next boot merges")
		m.mustInstall(target, "kubelet")
		require.Equal(t, say(target, target, target), m.versions())
	})
}
