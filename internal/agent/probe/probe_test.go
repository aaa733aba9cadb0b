package probe

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/probe/probetest"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
)

// ask asks one probe, by its name.
func ask(t *testing.T, all []Probe, name string) error {
	t.Helper()
	i := slices.IndexFunc(all, func(p Probe) bool { return p.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return all[i].Ask(t.Context())
}

func put(t *testing.T, dir, p, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, p), []byte(content), 0o600))
}

func TestWhatIsNotThereIsAbsent(t *testing.T) {
	h := host.Host{Root: host.Root{Dir: t.TempDir()}, Clock: host.WallClock{}}
	for _, p := range All(h, true) {
		require.ErrorIs(t, p.Ask(t.Context()), ErrAbsent, p.Name)
		require.NotEmpty(t, p.Look, p.Name)
	}
	put(t, h.Dir, "/var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: npipe:////./pipe/x\n")
	require.ErrorIs(t, ask(t, All(h, true), ContainerRuntime), ErrAbsent)
}

func TestContainerRuntime(t *testing.T) {
	dir := probetest.Dir(t)
	h := host.Host{Root: host.Root{Dir: dir}, Clock: host.WallClock{}}
	put(t, dir, "/var/lib/kubelet/config.yaml", "cgroupDriver: systemd\n")
	c := probetest.Serve(t, dir, probetest.Socket)
	all := All(h, false)
	these := []string{ContainerRuntime, PodNetwork, PodSandbox}
	for _, name := range these {
		require.NoError(t, ask(t, all, name), name)
	}
	require.Empty(t, c.Left(), "the sandbox was removed")

	c.TurnOff(true)
	for _, name := range these {
		require.EqualError(t, ask(t, all, name), "it answers Unimplemented: unknown service runtime.v1.RuntimeService", name)
	}
	c.TurnOff(false)
	c.NotReady("NetworkReady", "cni plugin not initialized, token=hunter2")
	require.EqualError(t, ask(t, all, PodNetwork), "NetworkReady is false: cni plugin not initialized, token=[redacted]")
	require.NoError(t, ask(t, all, ContainerRuntime))
	c.NotReady("RuntimeReady", "shutting down")
	require.EqualError(t, ask(t, all, ContainerRuntime), "RuntimeReady is false: shutting down")
}

func TestContainerRuntimeThatIsGone(t *testing.T) {
	dir := probetest.Dir(t)
	h := host.Host{Root: host.Root{Dir: dir}, Clock: host.WallClock{}}
	put(t, dir, "/var/lib/kubelet/config.yaml", "{}")
	put(t, dir, probetest.Socket, "a socket that nobody listens at is refused like a file")
	require.ErrorContains(t, ask(t, All(h, false), ContainerRuntime), "it answers Unavailable")
}

func TestRuntimeIsWhereTheKubeletLooksForIt(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"by its configuration": {"/var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///run/other.sock\n"},
		"by its arguments": {
			"/var/lib/kubelet/config.yaml":       "containerRuntimeEndpoint: unix:///run/wrong.sock\n",
			"/var/lib/kubelet/kubeadm-flags.env": "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/other.sock\"\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := probetest.Dir(t)
			for p, content := range files {
				put(t, dir, p, content)
			}
			probetest.Serve(t, dir, "/run/other.sock")
			require.NoError(t, ask(t, All(host.Host{Root: host.Root{Dir: dir}}, false), ContainerRuntime))
		})
	}
}

func TestSandbox(t *testing.T) {
	newNode := func(t *testing.T, driver string) (*probetest.CRI, []Probe) {
		dir := probetest.Dir(t)
		put(t, dir, "/var/lib/kubelet/config.yaml", "cgroupDriver: "+driver+"\n")
		return probetest.Serve(t, dir, probetest.Socket), All(host.Host{Root: host.Root{Dir: dir}}, false)
	}
	t.Run("is on the network of the node, and in a slice where systemd has the control groups", func(t *testing.T) {
		c, all := newNode(t, "systemd")
		require.NoError(t, ask(t, all, PodSandbox))
		made := c.Made()[0].GetLinux()
		require.Equal(t, "system.slice", made.GetCgroupParent())
		require.Equal(t, cri.NamespaceMode_NODE, made.GetSecurityContext().GetNamespaceOptions().GetNetwork())
	})
	t.Run("what the runtime says of its driver counts", func(t *testing.T) {
		c, all := newNode(t, "systemd")
		c.SetDriver(cri.CgroupDriver_CGROUPFS)
		require.NoError(t, ask(t, all, PodSandbox))
		require.Empty(t, c.Made()[0].GetLinux().GetCgroupParent())
	})
	t.Run("one that is left over is removed, and no other", func(t *testing.T) {
		c, all := newNode(t, "cgroupfs")
		c.LeaveBehind(hostSandbox.config(""))
		c.LeaveBehind(&cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "etcd", Namespace: "kube-system", Uid: "1"}})
		require.NoError(t, ask(t, all, PodSandbox))
		require.Equal(t, []string{"etcd_kube-system_1_0"}, c.Left())
	})
	t.Run("one for which no time is left is removed all the same", func(t *testing.T) {
		c, all := newNode(t, "cgroupfs")
		c.Hang(true)
		i := slices.IndexFunc(all, func(p Probe) bool { return p.Name == PodSandbox })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { // its time is over when the sandbox is there, however slow the machine is
			for len(c.Made()) == 0 && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		require.ErrorContains(t, all[i].Ask(ctx), "it answers Canceled")
		require.Len(t, c.Made(), 1)
		require.Empty(t, c.Left())
	})
	t.Run("one that does not stop is removed", func(t *testing.T) {
		c, all := newNode(t, "cgroupfs")
		c.LeaveBehind(hostSandbox.config(""))
		c.Stick(true)
		require.NoError(t, ask(t, all, PodSandbox))
		require.Empty(t, c.Left())
	})
	t.Run("one that can't be started is not left half made", func(t *testing.T) {
		c, all := newNode(t, "cgroupfs")
		c.LeaveBehind(hostSandbox.config(""))
		c.RefuseSandboxes("failed to get sandbox image")
		require.ErrorContains(t, ask(t, all, PodSandbox), "failed to get sandbox image")
		require.Empty(t, c.Left())
	})
}

func TestSandboxWithANetworkOfItsOwn(t *testing.T) {
	dir := probetest.Dir(t)
	h := host.Host{Root: host.Root{Dir: dir}}
	before, after := Network(h, false), Network(h, true)
	require.ErrorIs(t, before.Ask(t.Context()), ErrAbsent, "there is no runtime")
	put(t, dir, "/var/lib/kubelet/config.yaml", "{}")
	c := probetest.Serve(t, dir, probetest.Socket)
	c.LeaveBehind(networkSandbox.config(""))
	require.NoError(t, before.Ask(t.Context()))
	require.Equal(t, cri.NamespaceMode_POD, c.Made()[0].GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork())
	require.Empty(t, c.Left())

	c.BreakNetwork(`failed to find plugin "bridge" in path [/opt/none]`)
	require.NoError(t, ask(t, All(h, false), PodSandbox), "on the node's network it starts")
	require.ErrorIs(t, before.Ask(t.Context()), ErrAbsent)
	err := after.Ask(t.Context())
	require.NotErrorIs(t, err, ErrAbsent)
	require.EqualError(t, err, `it answers Unknown: failed to find plugin "bridge" in path [/opt/none]`)
	require.Empty(t, c.Left(), "what is half made is removed")

	c.BreakNetwork(`plugin type="calico" failed (add): error getting pod: pods "refit-probe-network" not found`)
	require.NoError(t, before.Ask(t.Context()), "a plugin that asks for the pod was found and could be run")
	require.NoError(t, after.Ask(t.Context()))

	c.BreakNetwork("")
	c.NotReady("NetworkReady", "cni plugin not initialized")
	made := len(c.Made())
	require.ErrorIs(t, before.Ask(t.Context()), ErrAbsent)
	require.Len(t, c.Made(), made, "without a network plugin there is nothing to try")
}

func TestKubelet(t *testing.T) {
	dir, well := t.TempDir(), true
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !well {
			http.Error(w, "no", http.StatusInternalServerError)
		}
	}))
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	require.NoError(t, err)
	put(t, dir, "/var/lib/kubelet/config.yaml", "healthzPort: "+at.Port()+"\n")
	all := All(host.Host{Root: host.Root{Dir: dir}}, false)
	require.NoError(t, ask(t, all, Kubelet))
	well = false
	require.ErrorContains(t, ask(t, all, Kubelet), "answers 500")
	put(t, dir, "/var/lib/kubelet/config.yaml", "healthzPort: 0\n")
	require.NoError(t, ask(t, all, Kubelet), "one that is not to say it says no ill")
	require.NoError(t, os.Remove(filepath.Join(dir, "/var/lib/kubelet/config.yaml")))
	require.ErrorIs(t, ask(t, all, Kubelet), ErrAbsent)
}

// cluster is what an API server says of the node.
type cluster struct {
	ready, message, renewed string
	reported, boot          string
	down                    bool
}

func (c *cluster) answer(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case c.down:
		http.Error(w, "no", http.StatusServiceUnavailable)
	case r.URL.Path == "/version":
		_, _ = w.Write([]byte("{}"))
	case r.URL.Path == "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+staticpodtest.Name:
		_ = json.NewEncoder(w).Encode(map[string]any{"spec": map[string]string{"renewTime": c.renewed}})
	case r.URL.Path == "/api/v1/nodes/"+staticpodtest.Name:
		_ = json.NewEncoder(w).Encode(map[string]any{"status": map[string]any{"conditions": []any{
			map[string]string{"type": "DiskPressure", "status": "True"},
			map[string]string{"type": "Ready", "status": c.ready, "message": c.message, "lastHeartbeatTime": c.reported},
		}, "nodeInfo": map[string]string{"bootID": c.boot}}})
	default:
		return false
	}
	return true
}

func TestTheClusterSeesTheNode(t *testing.T) {
	n := staticpodtest.NewNode(t)
	c := &cluster{ready: "True", renewed: "1"}
	n.Answer = c.answer
	change := func(do func()) { n.Set(func(*staticpodtest.Node) { do() }) }

	before, after := All(n.Host, false), All(n.Host, true)
	require.NoError(t, ask(t, before, Endpoint))
	require.NoError(t, ask(t, before, NodeObject))
	require.ErrorContains(t, ask(t, after, NodeObject), "has not renewed the node's lease", "Ready may be from before")
	require.ErrorContains(t, ask(t, after, NodeObject), "has not renewed the node's lease")
	change(func() { c.renewed = "2" })
	require.NoError(t, ask(t, after, NodeObject))
	require.NoError(t, ask(t, after, NodeObject), "once is enough: then the Node says when it is not heard of")
	change(func() { c.ready, c.message = "False", "container runtime is down" })
	require.EqualError(t, ask(t, after, NodeObject), "it is not Ready: container runtime is down")
	change(func() { c.down = true })
	require.ErrorContains(t, ask(t, before, Endpoint), "503")
	require.ErrorContains(t, ask(t, after, NodeObject), "503")
}

func TestWhatTheNodeSaysBesideReady(t *testing.T) {
	n := staticpodtest.NewNode(t)
	status := map[string]any{}
	down, asked := false, 0
	n.Answer = func(w http.ResponseWriter, r *http.Request) bool {
		if asked++; down {
			http.Error(w, "no", http.StatusServiceUnavailable)
			return true
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": status})
		return true
	}
	set := func(condition, is, pods string) {
		n.Set(func(*staticpodtest.Node) {
			status["conditions"] = []any{map[string]string{"type": condition, "status": is, "message": "token=hunter2"}}
			status["allocatable"] = map[string]string{"pods": pods}
		})
	}
	all := nodeProbes(n.Host.Root)
	n.Set(func(*staticpodtest.Node) { down = true })
	require.ErrorIs(t, ask(t, all, NodeDisk), ErrAbsent, "that the API server is away is told by others")
	all = nodeProbes(n.Host.Root)
	n.Set(func(*staticpodtest.Node) { down, asked = false, 0 })
	set("DiskPressure", "Unknown", "110")
	for _, p := range all {
		require.NoError(t, p.Ask(t.Context()), p.Name)
	}
	require.Equal(t, 1, asked, "one answer is for all")
	for name, condition := range map[string]string{
		NodeMemory: "MemoryPressure", NodeDisk: "DiskPressure", NodePIDs: "PIDPressure", NodeNetwork: "NetworkUnavailable",
	} {
		set(condition, "True", "110")
		for _, p := range all {
			err := p.Ask(t.Context())
			if p.Name == name {
				require.EqualError(t, err, condition+" of the Node is True: token=[redacted]")
			} else {
				require.NoError(t, err, p.Name)
			}
		}
	}
	set("DiskPressure", "False", "0")
	require.EqualError(t, ask(t, all, NodeRoom), "its allocatable pods are 0")
	n.Set(func(*staticpodtest.Node) { down = true })
	require.NoError(t, ask(t, all, NodeRoom), "what can't be asked now is not worse for that")
	set("DiskPressure", "False", "")
	n.Set(func(*staticpodtest.Node) { down = false })
	require.ErrorIs(t, ask(t, all, NodeRoom), ErrAbsent)
}

func TestTheKubeletHasReportedSince(t *testing.T) {
	n := staticpodtest.NewNode(t)
	c := &cluster{ready: "True", renewed: "1", reported: "2026-01-01T00:00:00Z", boot: "one"}
	n.Answer = c.answer
	change := func(do func()) { n.Set(func(*staticpodtest.Node) { do() }) }
	before, err := Reported(t.Context(), n.Host)
	require.NoError(t, err)
	require.Equal(t, c.reported, before)
	since := func(before string, rebooted bool) error {
		return ReportedSince(n.Host, before, rebooted).Ask(t.Context())
	}

	require.ErrorContains(t, since(before, false), "is from before the kubelet was restarted")
	require.NoError(t, since("", true), "a node that does not say which boot this is")
	n.Put(bootID, "two\n")
	require.ErrorContains(t, since("", true), "from before the node rebooted")
	require.NoError(t, since("", false))
	change(func() { c.reported = "2025-12-31T00:00:00Z" })
	require.NoError(t, since(before, false), "the clock may have been set back")
	require.ErrorContains(t, since(before, true), "from before the node rebooted", "it reported once more before it went down")
	change(func() { c.boot = "two" })
	require.NoError(t, since(before, true))
}

func TestTheAPIServerOnThisNode(t *testing.T) {
	n := staticpodtest.NewNode(t)
	at, err := url.Parse(n.API.URL)
	require.NoError(t, err)
	all := All(n.Host, false)
	require.ErrorIs(t, ask(t, all, APIServer), ErrAbsent)
	n.Put(apiServerManifest, strings.Join([]string{
		"{apiVersion: v1, kind: Pod, metadata: {name: kube-apiserver}, spec: {containers: [{name: a, command: [kube-apiserver",
		"--advertise-address=127.0.0.1", "--secure-port=" + at.Port() + "]}]}}",
	}, ", "))
	require.NoError(t, ask(t, all, APIServer))
	n.Set(func(n *staticpodtest.Node) { n.Down = 1 })
	require.ErrorContains(t, ask(t, all, APIServer), "503")
}

func TestAProbeGivesUp(t *testing.T) {
	p := New("x", func(ctx context.Context) error {
		_, limited := ctx.Deadline()
		if !limited {
			return errors.New("there is no end to it")
		}
		return nil
	})
	require.NoError(t, p.Ask(t.Context()))
}
