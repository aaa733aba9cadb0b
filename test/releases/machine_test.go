//go:build e2e

package releases

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/release"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/test/nodes"
	"github.com/capi-refit/refit/test/nodes/nodestest"
	"github.com/capi-refit/refit/test/program"
)

const (
	before = "v1.36.1"
	target = "v1.36.3"
)

// packages are what package managers and repositories take, besides what all nodes of tests have.
var packages = []string{"apt-utils", "gnupg", "dnf", "dnf-plugins-core", "rpm", "createrepo-c", "squashfs-tools", "systemd-container"}

// machine is a real Debian machine that runs Kubernetes 1.36.1, of stand-ins, and has a repository of releases on itself.
type machine struct {
	t    *testing.T
	node *nodes.Node
}

// newMachine starts a machine, which a script of testdata sets up.
func newMachine(t *testing.T, script string) *machine {
	t.Helper()
	f := nodestest.Start(t, nodes.Options{Names: []string{"debian"}, Packages: packages, LoopDevices: true})
	m := &machine{t: t, node: f.Node("debian")}
	program, err := builtProgram()
	require.NoError(t, err)
	m.put("/opt/release", program, "0755")
	for _, name := range []string{"programs.sh", script} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		m.put("/opt/"+name, text, "0644")
	}
	out, ok := m.try("bash /opt/" + script)
	if !ok {
		m.cannotBeSetUp(out)
	}
	return m
}

// cannotBeSetUp ends the test. That the engine gives no loop devices is none of ours.
func (m *machine) cannotBeSetUp(out string) {
	m.t.Helper()
	if strings.Contains(out, "loopback device") || strings.Contains(out, "mknod: ") {
		m.t.Skip("images can't be mounted here: " + out)
	}
	require.Fail(m.t, "the machine can't be set up", out)
}

var builtProgram = sync.OnceValues(func() ([]byte, error) {
	return program.Build(context.Background(), "github.com/capi-refit/refit/test/releases/cmd/release")
})

// run runs a part of a test, whose failure is that of the machine's steps in it.
func (m *machine) run(name string, f func(t *testing.T)) {
	m.t.Helper()
	parent := m.t
	defer func() { m.t = parent }()
	parent.Run(name, func(t *testing.T) {
		m.t = t
		f(t)
	})
}

func (m *machine) put(path string, content []byte, mode string) {
	m.t.Helper()
	require.NoError(m.t, m.node.WriteFile(m.t.Context(), path, nodes.File{Content: content, Mode: mode}))
}

// try runs a shell command on the machine, and returns what it wrote and whether it succeeded.
func (m *machine) try(command string) (string, bool) {
	m.t.Helper()
	out, err := m.node.Exec(m.t.Context(), "bash", "-c", "{ export GNUPGHOME=/root/keys; "+command+"\n} 2>&1; echo $?")
	require.NoError(m.t, err, command)
	text := strings.TrimSpace(string(out))
	end := strings.LastIndex(text, "\n") + 1
	return strings.TrimSpace(text[:end]), text[end:] == "0"
}

// sh runs a shell command that has to succeed, and returns what it wrote.
func (m *machine) sh(command string) string {
	m.t.Helper()
	out, ok := m.try(command)
	require.True(m.t, ok, "%s: %s", command, out)
	return out
}

// await waits until a shell command succeeds.
func (m *machine) await(command string) {
	m.t.Helper()
	require.Eventually(m.t, func() bool { _, ok := m.try(command); return ok }, time.Minute, 200*time.Millisecond, command)
}

// stage returns what the store told, and whether it succeeded.
func (m *machine) stage(src node.Source) (string, bool) {
	m.t.Helper()
	text, err := json.Marshal(src)
	require.NoError(m.t, err)
	m.put("/opt/source.json", text, "0600")
	return m.try("/opt/release stage </opt/source.json")
}

func (m *machine) mustStage(src node.Source) string {
	m.t.Helper()
	said, ok := m.stage(src)
	require.True(m.t, ok, said)
	require.Equal(m.t, "null", m.sh("/opt/release missing </opt/source.json"))
	return said
}

// refused requires that staging fails and says why, and that no release is there.
func (m *machine) refused(src node.Source, why string) {
	m.t.Helper()
	said, ok := m.stage(src)
	require.False(m.t, ok)
	m.t.Log(said)
	require.Contains(m.t, said, why)
	require.Nil(m.t, m.find(src.Version))
}

func (m *machine) find(version string) *release.Release {
	m.t.Helper()
	var found *release.Release
	require.NoError(m.t, json.Unmarshal([]byte(m.sh("/opt/release find "+version)), &found))
	return found
}

// install returns what the store said, and whether it succeeded.
func (m *machine) install(version string, programs ...string) (string, bool) {
	m.t.Helper()
	return m.try("/opt/release install " + version + " " + strings.Join(programs, " "))
}

// mustInstall also requires that the kubelet that ran goes on running.
func (m *machine) mustInstall(version string, programs ...string) {
	m.t.Helper()
	pid := m.kubelet()
	said, ok := m.install(version, programs...)
	require.True(m.t, ok, said)
	require.Equal(m.t, pid, m.kubelet(), "the kubelet was not restarted")
}

// kubelet is the process id of the kubelet that runs.
func (m *machine) kubelet() string {
	m.t.Helper()
	pid := m.sh("systemctl show --property MainPID --value kubelet.service")
	require.NotEqual(m.t, "0", pid)
	return pid
}

// versions are those that kubeadm, kubelet and kubectl say.
func (m *machine) versions() string {
	m.t.Helper()
	return m.sh("echo $(kubeadm version -o short; kubelet --version; kubectl version --client)")
}

func say(kubeadm, kubelet, kubectl string) string {
	return kubeadm + " Kubernetes " + kubelet + " Client Version: " + kubectl + " Kustomize Version: v5.8.0"
}

// state is everything that the paths have in them, but for locks.
func (m *machine) state(paths ...string) string {
	m.t.Helper()
	return m.sh("find -L " + strings.Join(paths, " ") + ` -type f ! -name 'lock*' ! -name '*.lock' -exec sha256sum {} + | sort -k 2`)
}

// killed starts an installation, and kills it with all that it has started when the kubelet's package is that far.
func (m *machine) killed(when string) {
	m.t.Helper()
	m.sh("rm -f /run/hanging && touch /run/hang-" + when)
	m.sh("systemd-run --quiet --collect --unit install.service /opt/release install " + target + " kubelet kubectl")
	m.await("[ -e /run/hanging ]")
	m.sh("systemctl kill --signal KILL install.service && rm /run/hang-" + when)
	m.await(`[ "$(systemctl show --property ActiveState --value install.service)" = inactive ]`)
}
