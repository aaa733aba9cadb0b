//go:build e2e

package nodes_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/test/nodes"
	"github.com/capi-refit/refit/test/nodes/nodestest"
)

func TestReboot(t *testing.T) {
	f := nodestest.Start(t, nodes.Options{Names: []string{"node-1", "node-2"}})
	n, other := f.Node("node-1"), f.Node("node-2")
	agents, address := buildAgents(t), n.Address()
	undisturbed, err := other.Boot(t.Context())
	require.NoError(t, err)
	for i, text := range []string{"one", "two"} {
		before, err := n.Boot(t.Context())
		require.NoError(t, err)
		_, err = n.Exec(t.Context(), "touch", "/run/goes")
		require.NoError(t, err)

		req := rebootRequest(int64(i+1), text)
		req.WaitSeconds = 60
		status, err := agent(t, n, agents).Apply(t.Context(), req)
		require.Error(t, err, "who waits is cut off when the node goes down: %+v", status)
		require.NoError(t, n.AwaitBoot(t.Context(), before))

		assert.Equal(t, address, n.Address())
		_, err = n.ReadFile(t.Context(), "/run/goes")
		require.Error(t, err)
		c := agent(t, n, agents)
		status, err = c.Status(t.Context(), node.StatusRequest{Machine: req.Machine, Digest: req.Digest})
		require.NoError(t, err)
		assert.True(t, status.Interrupted, "%+v", status)
		assert.False(t, status.Rebooting)
		status = apply(t, n, agents, req)
		require.Equal(t, node.Succeeded, status.State, status.Message)
		assert.Empty(t, status.Notes)

		requireLog(t, n, "/var/log/demo.log", "started "+text)
		assertHealthy(t, n)
		requireOneReboot(t, n, req.Digest)
	}
	still, err := other.Boot(t.Context())
	require.NoError(t, err)
	assert.Equal(t, undisturbed, still)
	left, err := n.Exec(t.Context(), "find", "/etc", "/var/lib/refit", "-name", ".refit-*", "-o", "-name", "run.json")
	require.NoError(t, err)
	assert.Empty(t, string(left))
}

func agent(t *testing.T, n *nodes.Node, agents *remote.Agents) *remote.Client {
	t.Helper()
	c, err := remote.NewClient(dial(t, n), n.ClientOptions(agents))
	require.NoError(t, err)
	return c
}

// apply has a node do what a request asks for, and logs in when the node waits for that.
func apply(t *testing.T, n *nodes.Node, agents *remote.Agents, req node.Request) node.Status {
	t.Helper()
	for {
		status, err := agent(t, n, agents).Apply(t.Context(), req)
		require.NoError(t, err)
		switch {
		case status.AwaitsLogin:
			_, err := agent(t, n, agents).Status(t.Context(), node.StatusRequest{Machine: req.Machine, Digest: status.Digest, Token: status.Token, Confirm: true})
			require.NoError(t, err)
		case status.State != node.Running:
			return status
		}
	}
}

func rebootRequest(token int64, text string) node.Request {
	file := func(path, content string) node.Resource {
		return node.Resource{File: &node.File{Path: path, Content: []byte(content), Owner: "root:root", Mode: "0644"}}
	}
	return node.Request{
		Machine: node.MachineID{Namespace: "default", Name: "node-1", UID: "1"}, Digest: "digest-" + text, Token: token,
		Resources: []node.Resource{
			file("/etc/boot.conf", text),
			file("/etc/systemd/system/demo.service.d/10-text.conf", fmt.Sprintf("[Service]\nEnvironment=DEMO_TEXT=%s\n", text)),
		},
		Rules: disruption.Rules{Files: append(disruption.Builtin(), disruption.Rule{
			Path: "/etc/boot.conf", Actions: []disruption.Action{{Type: disruption.Reboot}},
		})},
		Baseline: &node.Baseline{}, OnConflict: node.Refuse,
	}
}

// requireOneReboot reads the journal: the reboot was asked for in one boot and found done in another, each once.
func requireOneReboot(t *testing.T, n *nodes.Node, digest string) {
	t.Helper()
	journal, err := n.Journal(t.Context())
	require.NoError(t, err)
	boots := map[string][]string{}
	for _, e := range journal {
		if e.Digest == digest && e.Boot != "" {
			boots[e.Event] = append(boots[e.Event], e.Boot)
		}
	}
	require.Len(t, boots["step-started"], 1)
	require.Len(t, boots["step-done"], 1)
	require.NotEqual(t, boots["step-started"], boots["step-done"])
	require.LessOrEqual(t, len(boots["reboot-asked"]), 1, "the node may be down before it can write it")
}
