package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capi-refit/refit/internal/agent/probe"
	"github.com/capi-refit/refit/internal/agent/probe/probetest"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const (
	containerdConfig = "/etc/containerd/config.toml"
	withoutCRI       = "disabled_plugins = [\"cri\"]\n"
)

// fewLooks is time enough for a few looks at what works, by the tests' clock.
const fewLooks = 10 * time.Second

// criNode is a node with a container runtime that reads its configuration when it is restarted, as containerd does.
type criNode struct {
	*testNode
	cri *probetest.CRI
}

func newCRINode(t *testing.T) *criNode {
	t.Helper()
	n := layOut(t, probetest.Dir(t))
	n.put("/var/lib/kubelet/config.yaml", "healthzPort: 0\n")
	n.put(containerdConfig, "version = 2\n")
	c := &criNode{n, probetest.Serve(t, n.root, probetest.Socket)}
	n.agent.cfg.ActionTimeout = fewLooks
	n.units.hook = func(_ context.Context, call string) error {
		if call == "restart containerd.service" {
			c.cri.TurnOff(n.content(containerdConfig) == withoutCRI)
		}
		return nil
	}
	return c
}

// containerdRequest has a drain and a restart, as is built in.
func containerdRequest(token int64, content string, soak time.Duration) node.Request {
	req := request(token, containerdConfig, content)
	req.Rules.Files = disruption.Builtin()
	req.Rules.Soak = &soak
	return req
}

func (c *criNode) restarts() int {
	n := 0
	for _, call := range c.units.calls {
		if call == "restart containerd.service" {
			n++
		}
	}
	return n
}

func TestARuntimeThatIsGoneAfterARestartIsTakenBack(t *testing.T) {
	for _, soak := range []time.Duration{0, 10 * time.Second} {
		c := newCRINode(t)
		status := c.fail(containerdRequest(1, withoutCRI, soak))
		require.Equal(t, "verify", status.Step)
		require.Contains(t, status.Message, "verify failed: the container runtime worked before and does not now: "+
			"it answers Unimplemented: unknown service runtime.v1.RuntimeService (see journalctl -u containerd.service on the node); nor does the network of pods; ")
		require.Contains(t, status.Message, "the files were put back and containerd.service restarted")
		require.True(t, status.RolledBack)
		require.Equal(t, "version = 2\n", c.content(containerdConfig))
		require.Equal(t, 2, c.restarts())
		require.Empty(t, c.cri.Left())
		require.Equal(t, "(missing)", c.content("/var/lib/refit/works.json"))
		require.Equal(t, "changed 1 file, then: restart containerd.service", c.succeed(containerdRequest(2, "version = 3\n", soak)).Message)
	}
}

// TestARuntimeThatLosesItsPodsIsTakenBack has a containerd look elsewhere for its containers, by a setting that is none of its configuration's.
func TestARuntimeThatLosesItsPodsIsTakenBack(t *testing.T) {
	c := newCRINode(t)
	const dropIn = "/etc/systemd/system/containerd.service.d/root.conf"
	sandbox := &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "kube-proxy", Uid: "1", Namespace: "kube-system"}}
	id := c.cri.LeaveBehind(sandbox)
	c.put("/proc/uptime", "10000.00 5.00\n")
	c.put("/proc/100/cmdline", strings.Join([]string{"/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", id, ""}, "\x00"))
	c.put("/proc/100/stat", "100 (containerd-shim) S 1"+strings.Repeat(" 0", 17)+" 500 0\n")
	c.put("/proc/101/stat", "101 (pause) S 100"+strings.Repeat(" 0", 17)+" 500 0\n")
	for _, process := range []string{"/proc/1", "/proc/100"} {
		require.NoError(t, os.Mkdir(filepath.Join(c.root, process, "ns"), 0o755))
		require.NoError(t, os.Symlink("pid:[1]", filepath.Join(c.root, process, "ns/pid")))
	}
	c.units.hook = func(_ context.Context, call string) error {
		if call == "restart containerd.service" {
			if c.cri.Forget(); c.content(dropIn) == "(missing)" {
				c.cri.LeaveBehind(sandbox)
			}
		}
		return nil
	}
	req := request(1, dropIn, "[Service]\nExecStart=\nExecStart=/usr/bin/containerd --root /elsewhere\n")
	req.Rules.Files = disruption.Builtin()
	status := c.fail(req)
	require.Contains(t, status.Message, probe.KnownPods+" worked before and does not now: 1 of them run without it")
	require.True(t, status.RolledBack)
	require.Equal(t, "(missing)", c.content(dropIn))
}

func TestARunIsNotBlamedForWhatWasBrokenBefore(t *testing.T) {
	c := newCRINode(t)
	c.put(containerdConfig, withoutCRI)
	c.cri.TurnOff(true)
	c.units.hook = func(_ context.Context, call string) error {
		if call == "restart containerd.service" {
			c.cri.TurnOff(strings.HasPrefix(c.content(containerdConfig), "disabled_plugins"))
		}
		return nil
	}
	const off = "it answers Unimplemented: unknown service runtime.v1.RuntimeService"
	require.Equal(t, []string{
		"before anything was changed, this did not work on the node, and it is not asked for after it: the container runtime (" + off +
			"); the network of pods (" + off + "); starting a pod sandbox (" + off + ")",
	}, c.succeed(containerdRequest(1, withoutCRI+"# still\n", 0)).Notes)
	c.succeed(containerdRequest(2, "version = 2\n", 0))
	c.cri.RefuseSandboxes("failed to get sandbox image")
	require.Contains(t, c.succeed(containerdRequest(3, "version = 3\n", 0)).Notes[0], "starting a pod sandbox (it answers Unknown: failed to get sandbox image)")
	require.Contains(t, c.fail(containerdRequest(4, withoutCRI, 0)).Message, "the container runtime worked before", "it was mended, and counts from then on")
}

func TestWhatARunHasBrokenAndLeftIsAskedOfTheNext(t *testing.T) {
	c := newCRINode(t)
	req := containerdRequest(1, withoutCRI, 0)
	req.Rules.OnFailure = disruption.StopOnFailure
	require.Contains(t, c.fail(req).Message, "the node was left as it is")
	req.Token = 2
	require.Contains(t, c.fail(req).Message, "the container runtime worked before and does not now", "by itself it is not mended")
	require.Equal(t, node.Failed, c.apply(req).State)

	quiet := request(3, containerdConfig, "version = 2\n")
	quiet.Rules.Files = disruption.Table{{Path: containerdConfig, Actions: []disruption.Action{{Type: disruption.None}}}}
	quiet.Rules.OnFailure = disruption.StopOnFailure
	c.succeed(quiet) // it does what is owed: the restart
	require.Equal(t, "(missing)", c.content("/var/lib/refit/works.json"))
}

func TestWhatIsOwedIsAskedBesideWhatWorks(t *testing.T) {
	n := newTestNode(t)
	f := &fakeProbe{asked: map[string]int{}, broken: func(name string, _ int) bool { return name == "it" && n.content("/etc/kubelet/a") == "bad" }}
	n.agent.probes = f.all(f.named("it"), f.named("other"))
	for token := range int64(3) {
		req := onFailure(disruption.StopOnFailure, token+1, "/etc/kubelet/a", "bad")
		require.Contains(t, n.fail(req).Message, "it worked before and does not now", "as it was before the first of the runs")
	}
	n.succeed(request(4, "/etc/kubelet/a", "good"))
}

func TestARunThatChangesNothingLeavesWhatIsOwed(t *testing.T) {
	for before, after := range map[string]string{
		"": "(missing)", `{"before":["it"],"owed":["it"]}`: `{"before":["it"],"owed":["it"],"units":{"kubelet.service":true}}`,
	} {
		n := newTestNode(t)
		f := &fakeProbe{asked: map[string]int{}, broken: func(string, int) bool { return false }}
		n.agent.probes = f.all(f.named("it"), f.named("other"))
		require.NoError(t, n.agent.state.create())
		if before != "" {
			n.put("/var/lib/refit/works.json", before)
		}
		n.put("/var/lib/refit/backups", "no directory")
		require.Contains(t, n.fail(request(1, "/etc/kubelet/a", "a")).Message, "nothing was changed on the node")
		require.Equal(t, 1, f.asked["other"])
		require.Equal(t, after, n.content("/var/lib/refit/works.json"))
	}
}

func TestANodeThatCanNotBePutBackIsNotCalledSo(t *testing.T) {
	c := newCRINode(t)
	c.units.hook = func(_ context.Context, call string) error {
		c.cri.TurnOff(c.cri != nil && call == "restart containerd.service")
		return nil
	}
	status := c.fail(containerdRequest(1, withoutCRI, 0))
	require.False(t, status.RolledBack)
	require.Contains(t, status.Message, "the node could not be put back as it was: see that the node works again failed: the container runtime worked before")
	require.Equal(t, "version = 2\n", c.content(containerdConfig))
}

func TestWhatTakesNothingIsNotProbed(t *testing.T) {
	c := newCRINode(t)
	c.agent.probes = func(bool) []probe.Probe { panic("nobody is to ask") }
	c.succeed(request(1, "/etc/quiet/a", "a"))
}

// fakeProbe is what a test says works, by name.
type fakeProbe struct {
	mu     sync.Mutex
	asked  map[string]int
	broken func(name string, asked int) bool
}

func (f *fakeProbe) all(p ...probe.Probe) func(bool) []probe.Probe {
	return func(bool) []probe.Probe { return p }
}

func (f *fakeProbe) named(name string) probe.Probe {
	return probe.New(name, func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked[name]++
		if f.broken(name, f.asked[name]) {
			return errors.New("no")
		}
		return nil
	})
}

func TestProbesAcrossAReboot(t *testing.T) {
	for name, tc := range map[string]struct {
		broken bool
		fails  string
	}{"works again": {}, "does not": {broken: true, fails: "verify failed: it worked before and does not now"}} {
		t.Run(name, func(t *testing.T) {
			b := newBootNode(newTestNode(t))
			f := &fakeProbe{asked: map[string]int{}, broken: func(_ string, n int) bool { return tc.broken && n > 1 }}
			probes := f.all(f.named("it"))
			b.agent.probes = probes
			req := request(1, "/etc/boot/a", "a")
			req.Rules.Soak = new(4 * time.Second)
			require.True(t, b.apply(req).Rebooting)
			require.Equal(t, 1, f.asked["it"])
			b.start()
			b.agent.probes = probes
			b.useClock(&impatientAfter{left: 20})
			status := b.apply(req)
			if tc.fails == "" {
				require.Equal(t, node.Succeeded, status.State, status.Message)
				require.Equal(t, 5, f.asked["it"], "before, after, and while it is watched")
				return
			}
			require.Equal(t, node.Failed, status.State)
			require.Contains(t, status.Message, tc.fails)
			require.Contains(t, status.Message, rebootOnceMore)
		})
	}
}

// impatientAfter has no time left after a while.
type impatientAfter struct {
	testClock
	left int
}

func (c *impatientAfter) Wait(ctx context.Context, d time.Duration) error {
	if c.left--; c.left < 0 {
		return context.DeadlineExceeded
	}
	return c.testClock.Wait(ctx, d)
}

func TestDeathAtEveryBoundaryOfARunThatBreaksTheRuntimeWalk(t *testing.T) {
	t.Parallel()
	deaths := 0
	for nth := 0; ; nth += stride() {
		c := newCRINode(t)
		died := c.dieAt(nth)
		c.agent.cfg.ActionTimeout = fewLooks
		req := containerdRequest(1, withoutCRI, 4*time.Second)
		status := c.finish(req)
		require.Equal(t, node.Failed, status.State, *died)
		require.True(t, status.RolledBack, "after death at %q: %s", *died, status.Message)
		require.Equal(t, "version = 2\n", c.content(containerdConfig), *died)
		require.Contains(t, status.Message, "the container runtime worked before and does not now", *died)
		require.Equal(t, "(missing)", c.content("/var/lib/refit/works.json"), *died)
		require.Empty(t, c.cri.Left(), *died)
		c.newProcess()
		c.eachStepOnce(*died)
		c.succeed(containerdRequest(2, "version = 2\n", 0))
		c.noLeftovers()
		if *died == "" {
			break
		}
		deaths++
	}
	require.Greater(t, deaths, 20/stride())
}

func TestDeathAtEveryBoundaryOfARunThatIsWatchedWalk(t *testing.T) {
	t.Parallel()
	deaths := 0
	for nth := 0; ; nth += stride() {
		c := newCRINode(t)
		died := c.dieAt(nth)
		c.agent.cfg.ActionTimeout = fewLooks
		status := c.finish(containerdRequest(1, "version = 3\n", 4*time.Second))
		require.Equal(t, node.Succeeded, status.State, "after death at %q: %s", *died, status.Message)
		require.Equal(t, "version = 3\n", c.content(containerdConfig), *died)
		require.Equal(t, "(missing)", c.content("/var/lib/refit/works.json"), *died)
		c.newProcess()
		c.eachStepOnce(*died)
		require.Equal(t, 1, c.count("step-done watch the node"), *died)
		if *died == "" {
			break
		}
		deaths++
	}
	require.Greater(t, deaths, 20/stride())
}

// finish calls apply as a server does, until the run has ended.
func (c *criNode) finish(req node.Request) node.Status {
	for range 5 {
		status, err := c.agent.Apply(context.Background(), req)
		if err == nil && status.State != node.Running {
			return status
		}
		c.newProcess()
		c.agent.cfg.ActionTimeout = fewLooks
	}
	require.Fail(c.t, "the run does not end")
	return node.Status{}
}

func TestANetworkPluginThatIsGoneIsTakenBack(t *testing.T) {
	c := newCRINode(t)
	c.units.hook = func(_ context.Context, call string) error {
		why := ""
		if strings.Contains(c.content(containerdConfig), "bin_dir") {
			why = `failed to find plugin "bridge" in path [/opt/none]`
		}
		if call == "restart containerd.service" {
			c.cri.BreakNetwork(why)
		}
		return nil
	}
	status := c.fail(containerdRequest(1, "bin_dir = \"/opt/none\"\n", 0))
	require.Contains(t, status.Message, "verify failed: starting a pod sandbox with a network of its own worked before and does not now: "+
		"it answers Unknown: failed to find plugin")
	require.True(t, status.RolledBack, status.Message)
	require.Empty(t, c.cri.Left())

	c.cri.BreakNetwork("no plugin takes this pod")
	require.Empty(t, c.succeed(containerdRequest(2, "version = 3\n", 0)).Notes, "what did not work before is not asked after it")
}
