package nodetest_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNode(t *testing.T) {
	n, err := nodetest.Start(nodetest.Options{Name: "node-1"})
	require.NoError(t, err)
	to, err := n.Target()
	require.NoError(t, err)
	c, err := remote.SSHDialer{}.Dial(t.Context(), to)
	require.NoError(t, err)
	run := func(command string) string {
		var out bytes.Buffer
		require.NoError(t, c.Run(t.Context(), command, nil, &out))
		return out.String()
	}

	assert.Equal(t, n.Root()+" "+n.Root()+"\n", run(`echo "$PWD $REFIT_ROOT"`))
	assert.Equal(t, "node-1\n", run("cat etc/hostname"))
	assert.Equal(t, "loaded\n", run("systemctl show -p LoadState --value kubelet.service"))
	assert.Equal(t, "LoadState=loaded\nActiveState=active\n", run("systemctl show --property=LoadState,ActiveState kubelet.service"))
	assert.Equal(t, "active\n", run("systemctl is-active kubelet.service"))
	id := "systemctl show --property=InvocationID kubelet.service"
	before := run(id)
	run("systemctl restart kubelet.service")
	assert.NotEqual(t, before, run(id), "a restarted unit has another invocation")
	assert.Contains(t, n.SystemctlLog(), "\nrestart kubelet.service\n")

	require.NoError(t, os.WriteFile(filepath.Join(n.Root(), "etc/fake-systemctl-fails"), []byte("restart kubelet.service\n"), 0o600))
	var failed *remote.CommandError
	require.ErrorAs(t, c.Run(t.Context(), "systemctl restart kubelet.service", nil, nil), &failed)
	run("systemctl restart containerd.service")

	assert.Len(t, n.Commands(), 10)
	assert.Equal(t, 1, n.Connections())
	require.NoError(t, c.Close())
	require.NoError(t, n.Close())
	assert.NoDirExists(t, n.Root())
}

// TestANodeWithoutAShell is about one that answers by itself, at an address of its own.
func TestANodeWithoutAShell(t *testing.T) {
	n, err := nodetest.Start(nodetest.Options{Listen: "127.0.7.9:0", Run: func(command string, stdin io.Reader, stdout io.Writer) int {
		text, _ := io.ReadAll(stdin)
		_, _ = fmt.Fprintf(stdout, "%s %s", command, text)
		return 3
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close()) }()
	require.Equal(t, "127.0.7.9", n.Address().Host)
	require.Empty(t, n.Root())
	to, err := n.Target()
	require.NoError(t, err)
	c, err := remote.SSHDialer{}.Dial(t.Context(), to)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	var out bytes.Buffer
	var failed *remote.CommandError
	require.ErrorAs(t, c.Run(t.Context(), "ask", strings.NewReader("something"), &out), &failed)
	require.Equal(t, 3, failed.Status)
	require.Equal(t, "ask something", out.String())
}

func TestHundredsOfNodes(t *testing.T) {
	for range 300 {
		n, err := nodetest.Start(nodetest.Options{})
		require.NoError(t, err)
		defer func() { assert.NoError(t, n.Close()) }()
		to, err := n.Target()
		require.NoError(t, err)
		c, err := remote.SSHDialer{}.Dial(t.Context(), to)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
	}
}
