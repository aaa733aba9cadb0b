package remote_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

func TestLogIn(t *testing.T) {
	login := func(t *testing.T, n *nodetest.Node, o remote.ClientOptions) error {
		t.Helper()
		o.Agents, o.Dir = agents(t, scriptAgent), "bin-refit"
		c, err := remote.NewClient(dial(t, target(t, n)), o)
		require.NoError(t, err)
		defer func() { require.Empty(t, inDir(t, n), "no agent is brought") }()
		return c.LogIn(t.Context())
	}
	n := start(t, nodetest.Options{Noise: "Welcome\n"})
	require.NoError(t, login(t, n, remote.ClientOptions{}))

	tool(t, n.Root(), "sudo", `[ "$1 $2" = "-n --" ] || exit 1; shift 2; echo ran >>"$REFIT_ROOT/sudo.log"; exec "$@"`)
	require.NoError(t, login(t, n, remote.ClientOptions{Sudo: true}))
	log, err := os.ReadFile(filepath.Join(n.Root(), "sudo.log"))
	require.NoError(t, err)
	require.Equal(t, "ran\n", string(log))

	tool(t, n.Root(), "sudo", `echo 'sudo: a password is required' >&2; exit 1`)
	err = login(t, n, remote.ClientOptions{Sudo: true})
	require.ErrorIs(t, err, remote.ErrUnauthorized)
	require.ErrorContains(t, err, "a password is required")
	require.NoError(t, login(t, n, remote.ClientOptions{}), "sudo is not asked where it is not to be used")

	n = start(t, nodetest.Options{})
	err = login(t, n, remote.ClientOptions{Gate: true})
	require.ErrorIs(t, err, remote.ErrUnauthorized, "a key that is not bound to the gate")

	n = start(t, nodetest.Options{ForceCommand: "echo 'This account is currently not available.'; exit 1"})
	require.ErrorIs(t, login(t, n, remote.ClientOptions{}), remote.ErrUnauthorized)

	n = start(t, nodetest.Options{ForceCommand: `echo '{"gate":{"protocol":1}}'`})
	require.NoError(t, login(t, n, remote.ClientOptions{Gate: true}))
}
