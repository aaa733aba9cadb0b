package probe

import (
	"fmt"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/probe/probetest"
)

// TestPodsThatRunWithoutTheirRuntime has the directories of a containerd be moved, however that was done: it starts well, and the pods that
// ran run on.
func TestPodsThatRunWithoutTheirRuntime(t *testing.T) {
	const up, fresh = 10000, 10
	dir := probetest.Dir(t)
	h := host.Host{Root: host.Root{Dir: dir}, Clock: host.WallClock{}}
	put(t, dir, "/var/lib/kubelet/config.yaml", "{}")
	put(t, dir, "/proc/uptime", fmt.Sprintf("%d.10 5.00\n", up))
	process := func(pid, ranFor int, args ...string) {
		at := path.Join("/proc", fmt.Sprint(pid))
		var line string
		for _, arg := range args {
			line += arg + "\x00"
		}
		put(t, dir, at+"/cmdline", line)
		put(t, dir, at+"/stat", fmt.Sprintf("%d (containerd-shim) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 20\n", pid, (up-ranFor)*ticks))
	}
	shim := func(pid, ranFor int, namespace, id string) {
		process(pid, ranFor, "/usr/bin/containerd-shim-runc-v2", "-namespace", namespace, "-id", id, "-address", "/run/containerd/containerd.sock")
	}
	c := probetest.Serve(t, dir, probetest.Socket)
	known := c.LeaveBehind(&cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "kube-proxy", Uid: "1", Namespace: "kube-system"}})
	require.NoError(t, ask(t, All(h, false), KnownPods), "nothing runs")

	shim(100, settled+1, "k8s.io", known)
	shim(101, settled+1, "moby", "somebody's")
	shim(102, fresh, "k8s.io", "one-that-is-being-started")
	process(103, settled+1, "/bin/sh", "-namespace", "k8s.io", "-id", "no-shim")
	process(104, settled+1)
	require.NoError(t, ask(t, All(h, false), KnownPods))

	c.Forget()
	require.EqualError(t, ask(t, All(h, false), KnownPods),
		"1 of them run without it, among them "+known+": it keeps its containers in other directories than when they were started")

	shim(100, fresh, "k8s.io", known)
	require.NoError(t, ask(t, All(h, false), KnownPods), "after a boot")
}
