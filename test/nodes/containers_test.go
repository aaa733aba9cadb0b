//go:build e2e

package nodes_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/test/nodes"
	"github.com/capi-refit/refit/test/nodes/nodestest"
)

// buildAgents builds the agent for this machine.
func buildAgents(t *testing.T) *remote.Agents {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "refit-node-linux-"+runtime.GOARCH), "github.com/capi-refit/refit/cmd/refit-node")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	agents, err := remote.LoadAgents(dir)
	require.NoError(t, err)
	return agents
}

func dial(t *testing.T, n *nodes.Node) remote.Conn {
	t.Helper()
	to, err := n.Target()
	require.NoError(t, err)
	c, err := remote.SSHDialer{}.Dial(t.Context(), to)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestContainers(t *testing.T) {
	f := nodestest.Start(t, nodes.Options{Names: []string{"node-1", "node-2"}})
	for _, n := range f.Nodes() {
		t.Run(n.Name(), func(t *testing.T) {
			testNode(t, n)
			var out bytes.Buffer
			require.NoError(t, dial(t, n).Run(t.Context(), "sudo -n -- sh -c 'id -u; hostname; cat /proc/1/comm'", nil, &out))
			assert.Equal(t, "0\n"+n.Name()+"\nsystemd\n", out.String())
			assertHealthy(t, n)
		})
	}
	t.Run("one node's key is not another's", func(t *testing.T) {
		to, err := f.Node("node-1").Target()
		require.NoError(t, err)
		to.Addresses = []remote.Address{f.Node("node-2").Address()}
		_, err = remote.SSHDialer{}.Dial(t.Context(), to)
		var refused *remote.HostKeyError
		require.ErrorAs(t, err, &refused)
	})
	t.Run("a restarted node is the same one", func(t *testing.T) {
		n := f.Node("node-1")
		_, err := n.Exec(t.Context(), "touch", "/var/lib/stays", "/run/goes")
		require.NoError(t, err)
		require.NoError(t, n.Restart(t.Context()))
		_, err = n.Exec(t.Context(), "sh", "-c", "[ -e /var/lib/stays ] && [ ! -e /run/goes ]")
		require.NoError(t, err)
		assertHealthy(t, n)
	})
}

// An engine frees the address of a container that is off, and a machine that reboots is off for a moment.
func TestANodeThatIsOffKeepsItsAddress(t *testing.T) {
	n := nodestest.Start(t, nodes.Options{Names: []string{"off"}}).Node("off")
	address := n.Address()
	engine := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "docker", args...).CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.TrimSpace(string(out))
	}
	container := engine("ps", "--quiet", "--filter", "name=-off$")
	engine("stop", "--time", "0", container)
	other := nodestest.Start(t, nodes.Options{Names: []string{"comes-meanwhile"}}).Node("comes-meanwhile")
	assert.NotEqual(t, address, other.Address())
	engine("start", container)
	require.Eventually(t, func() bool {
		to, err := n.Target()
		require.NoError(t, err)
		c, err := remote.SSHDialer{}.Dial(t.Context(), to)
		return err == nil && c.Close() == nil
	}, time.Minute, 200*time.Millisecond, "it answers where it did")
}

func TestFiveContainersAtOnce(t *testing.T) {
	began := time.Now()
	f := nodestest.Start(t, nodes.Options{Names: []string{"node-1", "node-2", "node-3", "node-4", "node-5"}})
	t.Logf("five containers are there after %s", time.Since(began).Round(time.Millisecond))
	for _, n := range f.Nodes() {
		assertHealthy(t, n)
		// One systemd must not see another's units.
		out, err := n.Exec(t.Context(), "sh", "-c", "systemd-run --quiet --wait --collect --unit=only-here true && systemctl restart demo.service && systemctl is-active demo.service")
		require.NoError(t, err)
		assert.Equal(t, "active\n", string(out))
	}
}

func assertHealthy(t *testing.T, n *nodes.Node) {
	t.Helper()
	var out []byte
	healthy := assert.Eventually(t, func() bool {
		out, _ = n.Exec(t.Context(), "systemctl", "is-system-running")
		return strings.TrimSpace(string(out)) == "running"
	}, time.Minute, 200*time.Millisecond)
	if !healthy {
		failed, _ := n.Exec(t.Context(), "systemctl", "--failed", "--no-legend")
		t.Logf("%s is %s: %s", n.Name(), out, failed)
	}
}

func TestContainersDoNotOutliveTheirFleet(t *testing.T) {
	left := func() string {
		out, err := exec.CommandContext(t.Context(), "docker", "ps", "--all", "--quiet", "--filter", "name=interrupted").Output()
		require.NoError(t, err)
		return string(out)
	}
	nodestest.Start(t, nodes.Options{Names: []string{"other"}}) // is none of the fleet's below
	t.Run("its context ends", func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		f, err := nodes.Start(ctx, nodes.Options{Kind: nodes.Containers, Names: []string{"interrupted"}})
		require.NoError(t, err)
		interrupt()
		require.NoError(t, f.Stop(t.Context()), "it waits for the removal that is under way")
		assert.Empty(t, left())
	})
	t.Run("its context ends while it starts", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		defer cancel()
		_, err := nodes.Start(ctx, nodes.Options{Kind: nodes.Containers, Names: []string{"interrupted-1", "interrupted-2", "interrupted-3", "interrupted-4"}})
		require.Error(t, err)
		assert.Empty(t, left())
	})
	t.Run("its process was killed", func(t *testing.T) {
		host, err := os.Hostname()
		require.NoError(t, err)
		gone := exec.CommandContext(t.Context(), "true")
		require.NoError(t, gone.Run())
		create := exec.CommandContext(t.Context(), "docker", "create", "--name", "interrupted", "--label", "dev.capi-refit.test=dead",
			"--label", fmt.Sprintf("dev.capi-refit.test.owner=%s/%d/1", host, gone.Process.Pid), image(t))
		require.NoError(t, create.Run())
		nodestest.Start(t, nodes.Options{Names: []string{"next"}})
		assert.Empty(t, left())
	})
}

// image is any image that is there.
func image(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", "images", "--quiet", "refit-test-node").Output()
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(out), "\n")
	require.NotEmpty(t, first)
	return first
}

func TestAgent(t *testing.T) {
	t.Run("in a container", func(t *testing.T) {
		n := nodestest.Start(t, nodes.Options{Names: []string{"node-1"}}).Node("node-1")
		testAgent(t, n)
		requireLog(t, n, "/var/log/demo.log", "started one")
	})
	t.Run("in a stand-in", func(t *testing.T) {
		n := start(t, nodes.Options{Kind: nodes.StandIns, Names: []string{"node-1"}}).Node("node-1")
		testAgent(t, n)
		requireLog(t, n, "/var/log/fake-systemctl.log", "restart demo.service")
	})
}

func testAgent(t *testing.T, n *nodes.Node) {
	t.Helper()
	agents := buildAgents(t)
	c, err := remote.NewClient(dial(t, n), n.ClientOptions(agents))
	require.NoError(t, err)

	id, err := c.Identity(t.Context())
	require.NoError(t, err)
	assert.Equal(t, node.Protocol, id.Protocol)
	if n.Kind() == nodes.Containers {
		assert.Equal(t, "node-1", id.Hostname)
	}

	path := "/etc/systemd/system/demo.service.d/10-text.conf"
	request := func(token int64, text string) node.Request {
		return node.Request{
			Machine: node.MachineID{Namespace: "default", Name: "node-1", UID: "1"}, Digest: "digest-" + text, Token: token,
			Resources: []node.Resource{{File: &node.File{
				Path: path, Content: fmt.Appendf(nil, "[Service]\nEnvironment=DEMO_TEXT=%s\n", text), Owner: "root:root", Mode: "0644",
			}}},
			Rules: disruption.Rules{Files: disruption.Table{{
				Path:    "/etc/systemd/system/demo.service.d",
				Actions: []disruption.Action{{Type: disruption.DaemonReload}, {Type: disruption.Restart, Unit: "demo.service"}},
			}}},
			OnConflict: node.Refuse, WaitSeconds: 60,
		}
	}
	plan, err := c.Plan(t.Context(), request(1, "one"))
	require.NoError(t, err)
	require.Len(t, plan.Changes, 1)
	assert.Equal(t, node.Write, plan.Changes[0].Operation)

	status := apply(t, n, agents, request(1, "one"))
	require.Equal(t, node.Succeeded, status.State, status.Message)
	f, err := n.ReadFile(t.Context(), path)
	require.NoError(t, err)
	assert.Equal(t, nodes.File{Content: []byte("[Service]\nEnvironment=DEMO_TEXT=one\n"), Mode: "0644", Owner: "root:root"}, f)
	journal, err := n.Journal(t.Context())
	require.NoError(t, err)
	assert.NotEmpty(t, journal)

	_, err = c.Apply(t.Context(), request(0, "none"))
	var refused *node.AgentError
	require.ErrorAs(t, err, &refused)

	plan, err = c.Plan(t.Context(), request(2, "one"))
	require.NoError(t, err)
	assert.Empty(t, plan.Changes, "what was applied is not planned again")
}

// requireLog waits for a line in a log.
func requireLog(t *testing.T, n *nodes.Node, log, line string) {
	t.Helper()
	require.Eventually(t, func() bool {
		f, err := n.ReadFile(t.Context(), log)
		return err == nil && strings.Contains(string(f.Content), line+"\n")
	}, time.Minute, 100*time.Millisecond, "no %q in %s", line, log)
}
