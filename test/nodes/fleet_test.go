package nodes_test

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/test/nodes"
)

func start(t *testing.T, o nodes.Options) *nodes.Fleet {
	t.Helper()
	o.Progress = t.Output()
	f, err := nodes.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Stop(t.Context())) })
	return f
}

func TestStandIns(t *testing.T) {
	f := start(t, nodes.Options{Kind: nodes.StandIns, Names: []string{"node-1", "node-2"}})
	assert.Equal(t, nodes.StandIns, f.Kind())
	assert.Nil(t, f.Node("node-3"))
	assert.Equal(t, 2, strings.Count(string(f.KnownHosts()), "\n"))
	testNode(t, f.Node("node-2"))
	require.Error(t, f.Node("node-1").Restart(t.Context()))
}

// testNode holds for all kinds of nodes.
func testNode(t *testing.T, n *nodes.Node) {
	t.Helper()
	ctx := t.Context()

	name, err := n.ReadFile(ctx, "/etc/hostname")
	require.NoError(t, err)
	assert.Equal(t, nodes.File{Content: []byte(n.Name() + "\n"), Mode: "0644", Owner: "root:root"}, name)
	_, err = n.ReadFile(ctx, "/etc/nothing")
	require.ErrorIs(t, err, fs.ErrNotExist)
	out, err := n.Exec(ctx, "echo", "it's")
	require.NoError(t, err)
	assert.Equal(t, "it's\n", string(out))
	_, err = n.Exec(ctx, "sh", "-c", "echo why >&2; false")
	require.ErrorContains(t, err, "why")
	entries, err := n.Journal(ctx)
	require.NoError(t, err)
	assert.Empty(t, entries)

	to, err := n.Target()
	require.NoError(t, err)
	hasty := to
	hasty.Timeouts = remote.Timeouts{Dial: time.Second, Handshake: time.Second}
	require.NoError(t, n.Pause(ctx))
	_, err = remote.SSHDialer{}.Dial(ctx, hasty)
	require.ErrorIs(t, err, remote.ErrUnreachable)
	require.NoError(t, n.Unpause(ctx))
	c, err := remote.SSHDialer{}.Dial(ctx, to)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}
