package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
)

// TestANodeAnswersAsTheAgentDoes has refit's own client speak to a node.
func TestANodeAnswersAsTheAgentDoes(t *testing.T) {
	n, err := newNodes()
	require.NoError(t, err)
	defer func() { require.NoError(t, n.stop()) }()
	require.NoError(t, n.start(1, false))
	require.NoError(t, n.start(2, false))
	require.NotEqual(t, n.well[0].Address(), n.well[1].Address())
	to, err := n.well[0].Target()
	require.NoError(t, err)
	conn, err := remote.SSHDialer{}.Dial(t.Context(), to)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	dir := t.TempDir()
	for _, name := range []string{"refit-node-linux-amd64", "refit-node-linux-arm64"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	agents, err := remote.LoadAgents(dir)
	require.NoError(t, err)
	agent, err := remote.NewClient(conn, remote.ClientOptions{Agents: agents})
	require.NoError(t, err)

	asked := node.Request{Digest: "one", Token: 3, Resources: []node.Resource{{File: &node.File{Path: "/etc/app/a"}}, {Version: &node.Version{}}}}
	ask := node.StatusRequest{Digest: asked.Digest}
	status, err := agent.Status(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, node.Idle, status.State)
	plan, err := agent.Plan(t.Context(), asked)
	require.NoError(t, err)
	require.Len(t, plan.Changes, 1)
	require.False(t, plan.Disturbs())
	for range 2 {
		status, err = agent.Apply(t.Context(), asked)
		require.NoError(t, err)
		require.Equal(t, node.Succeeded, status.State)
		require.Equal(t, asked.Token, status.Token)
		require.Len(t, status.Changes, 1)
	}
	status, err = agent.Status(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, node.Succeeded, status.State)
	plan, err = agent.Plan(t.Context(), asked)
	require.NoError(t, err)
	require.Empty(t, plan.Changes)
}

// TestADarkNodeTakesAConnectionAndSaysNothing until whoever has dialled gives up.
func TestADarkNodeTakesAConnectionAndSaysNothing(t *testing.T) {
	n, err := newNodes()
	require.NoError(t, err)
	defer func() { require.NoError(t, n.stop()) }()
	require.NoError(t, n.start(1, false))
	require.NoError(t, n.start(251, true))
	to, err := n.well[0].Target()
	require.NoError(t, err)
	to.Addresses = []remote.Address{{Host: address(251), Port: n.port}}
	to.Timeouts.Handshake = 50 * time.Millisecond
	_, err = remote.SSHDialer{}.Dial(t.Context(), to)
	require.ErrorIs(t, err, remote.ErrUnreachable)
	require.EqualValues(t, 1, n.dials.Load())
	require.Eventually(t, func() bool { return n.now.Load() == 0 }, time.Minute, time.Millisecond)
}

// TestDarkNodesAreNotAmongThoseThatAreOpened, and what is asked for fits into the fleet.
func TestDarkNodesAreNotAmongThoseThatAreOpened(t *testing.T) {
	n := &nodes{}
	o := options{machines: 2000, clusters: 50, namespaces: 5, policies: 20, dark: 200}
	f, err := newFleet(o, n)
	require.NoError(t, err)
	require.Len(t, f.policed, openedOnes)
	require.Len(t, f.darkened, 2) // of 120 machines each
	for p, of := range f.darkened {
		require.NotContains(t, f.policed, p)
		require.Equal(t, namespaceOf(o, p-o.namespaces), of.policy.Namespace, "they are in the namespaces of those")
	}
	o.dark = 2000
	_, err = newFleet(o, n)
	require.ErrorContains(t, err, "there are no 2000 dark nodes, but")
	require.ErrorContains(t, mayOpen(1<<40), "ulimit -n")
}
