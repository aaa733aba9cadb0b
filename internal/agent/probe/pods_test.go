package probe

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/probe/probetest"
)

// shimNode is a node whose containerd knows of one pod, and on which a test starts processes.
type shimNode struct {
	t     *testing.T
	dir   string
	cri   *probetest.CRI
	known string
}

// shimNodeUp is how long, in seconds, a shimNode has been up.
const shimNodeUp = 10000

func newShimNode(t *testing.T) shimNode {
	t.Helper()
	n := shimNode{t: t, dir: probetest.Dir(t)}
	put(t, n.dir, "/var/lib/kubelet/config.yaml", "{}")
	put(t, n.dir, "/proc/uptime", fmt.Sprintf("%d.10 5.00\n", shimNodeUp))
	n.namespace(1, "pid:[1]")
	n.cri = probetest.Serve(t, n.dir, probetest.Socket)
	n.known = n.cri.LeaveBehind(&cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "kube-proxy", Uid: "1", Namespace: "kube-system"}})
	return n
}

// namespace puts a process into a PID namespace.
func (n shimNode) namespace(pid int, namespace string) {
	n.t.Helper()
	link := filepath.Join(n.dir, "/proc", strconv.Itoa(pid), "ns/pid")
	require.NoError(n.t, os.MkdirAll(filepath.Dir(link), 0o755))
	_ = os.Remove(link)
	require.NoError(n.t, os.Symlink(namespace, link))
}

// process starts one, so many seconds ago.
func (n shimNode) process(pid, ranFor int, args ...string) {
	n.t.Helper()
	n.child(pid, 1, "S", ranFor, args...)
}

// child starts a process of another one.
func (n shimNode) child(pid, parent int, state string, ranFor int, args ...string) {
	n.t.Helper()
	at := path.Join("/proc", strconv.Itoa(pid))
	var line string
	for _, arg := range args {
		line += arg + "\x00"
	}
	put(n.t, n.dir, at+"/cmdline", line)
	put(n.t, n.dir, at+"/stat", fmt.Sprintf("%d (a ) name) %s %d 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 20\n", pid, state, parent, (shimNodeUp-ranFor)*ticks))
	n.namespace(pid, "pid:[1]")
}

// shim starts that of a sandbox in which something runs.
func (n shimNode) shim(pid, ranFor int, namespace, id string) {
	n.t.Helper()
	n.child(pid+1000, pid, "S", ranFor, "/pause")
	n.process(pid, ranFor, "/usr/bin/containerd-shim-runc-v2", "-namespace", namespace, "-id", id, "-address", "/run/containerd/containerd.sock")
}

func (n shimNode) ask() error {
	n.t.Helper()
	return ask(n.t, All(host.Host{Root: host.Root{Dir: n.dir}, Clock: host.WallClock{}}, false), KnownPods)
}

// TestPodsThatRunWithoutTheirRuntime has the directories of a containerd be moved, however that was done: it starts well, and the pods that
// ran run on.
func TestPodsThatRunWithoutTheirRuntime(t *testing.T) {
	const fresh = 10
	n := newShimNode(t)
	require.NoError(t, n.ask(), "nothing runs")

	n.shim(100, settled+1, "k8s.io", n.known)
	n.shim(101, settled+1, "moby", "somebody's")
	n.shim(102, fresh, "k8s.io", "one-that-is-being-started")
	n.process(103, settled+1, "/bin/sh", "-namespace", "k8s.io", "-id", "no-shim")
	n.process(104, settled+1)
	require.NoError(t, n.ask())

	n.cri.Forget()
	require.EqualError(t, n.ask(),
		`1 of them run without it, among them "`+n.known+`": it keeps its containers in other directories than when they were started`)

	n.shim(100, fresh, "k8s.io", n.known)
	require.NoError(t, n.ask(), "after a boot")
}

// TestAShimThatContainerdHasLeftBehind has nothing run in its sandbox, which containerd has removed and knows no more.
func TestAShimThatContainerdHasLeftBehind(t *testing.T) {
	n := newShimNode(t)
	n.shim(100, settled+1, "k8s.io", n.known)
	n.shim(101, settled+1, "k8s.io", "removed")
	require.Error(t, n.ask())
	n.child(1101, 101, zombie, settled+1)
	require.NoError(t, n.ask(), "what has ended does not run")
	require.NoError(t, os.RemoveAll(filepath.Join(n.dir, "/proc/1101")))
	require.NoError(t, n.ask())
}

// TestWhatOnlyCallsItselfAShim has processes that show the command line of a shim and are none of the node's containerd.
func TestWhatOnlyCallsItselfAShim(t *testing.T) {
	for name, start := range map[string]func(n shimNode){
		"a containerd in a pod": func(n shimNode) {
			n.shim(100, settled+1, "k8s.io", "inner")
			n.namespace(100, "pid:[2]")
		},
		"one whose namespace can't be read": func(n shimNode) {
			n.shim(100, settled+1, "k8s.io", "unknown")
			require.NoError(n.t, os.Remove(filepath.Join(n.dir, "/proc/100/ns/pid")))
		},
		"one that others can change": func(n shimNode) { // as good as one of another user's, for who is not root
			n.shim(100, settled+1, "k8s.io", "forged")
			require.NoError(n.t, os.Chmod(filepath.Join(n.dir, "/proc/100"), 0o777))
		},
		"an ID that is none":  func(n shimNode) { n.shim(100, settled+1, "k8s.io", "see http://evil\n") },
		"an ID of any length": func(n shimNode) { n.shim(100, settled+1, "k8s.io", strings.Repeat("a", 129)) },
		"an ID that was cut off": func(n shimNode) {
			n.process(100, settled+1, "containerd-shim", "-namespace", "k8s.io", strings.Repeat("a", maxArgs-41), "-id", "abc")
		},
		"a command line of any length": func(n shimNode) {
			n.process(100, settled+1, "containerd-shim"+strings.Repeat("a", maxArgs), "-namespace", "k8s.io", "-id", "a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newShimNode(t)
			start(n)
			require.NoError(t, n.ask())
		})
	}
}
