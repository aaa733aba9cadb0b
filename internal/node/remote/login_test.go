package remote_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
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
		err = c.LogIn(t.Context())
		require.Equal(t, err == nil, remote.Reach(t.Context(), dial(t, target(t, n)), remote.ClientOptions{Dir: o.Dir, Sudo: o.Sudo, Gate: o.Gate}) == nil, "refit check --nodes says the same")
		return err
	}
	n := start(t, nodetest.Options{Noise: "Welcome\n"})
	require.NoError(t, login(t, n, remote.ClientOptions{}))

	tool(t, n.Root(), "sudo", `[ "$1 $2" = "-n --" ] || exit 1; shift 2; echo ran >>"$REFIT_ROOT/sudo.log"; exec "$@"`)
	require.NoError(t, login(t, n, remote.ClientOptions{Sudo: true}))
	log, err := os.ReadFile(filepath.Join(n.Root(), "sudo.log"))
	require.NoError(t, err)
	require.Equal(t, "ran\nran\n", string(log))

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

	n = start(t, nodetest.Options{})
	dir := filepath.Join(n.Root(), "bin-refit")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, login(t, n, remote.ClientOptions{}))
	require.NoError(t, os.Chmod(dir, 0o777))
	err = login(t, n, remote.ClientOptions{})
	require.ErrorContains(t, err, "others on the node could exchange it")
	require.NotErrorIs(t, err, remote.ErrUnauthorized)

	n = start(t, nodetest.Options{ForceCommand: `echo '{"gate":{"protocol":1}}'`})
	require.NoError(t, login(t, n, remote.ClientOptions{Gate: true}))
}

// TestAForcedCommandIsNoLogin, though it ends well: the status is to say so before an update meets it.
func TestAForcedCommandIsNoLogin(t *testing.T) {
	for name, command := range map[string]string{
		// cloud-init before 20.1 has root's key do this: Amazon Linux 2, CentOS 7, Ubuntu 18.04.
		"cloud-init's":                   `echo 'Please login as the user "ec2-user" rather than the user "root".';echo;sleep 0`,
		"one that says nothing":          "true",
		"one that says what it is asked": `echo "$SSH_ORIGINAL_COMMAND"`,
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, nodetest.Options{ForceCommand: command})
			conn := dial(t, target(t, n))
			c, err := remote.NewClient(conn, remote.ClientOptions{Agents: agents(t, scriptAgent), Dir: "bin-refit"})
			require.NoError(t, err)
			_, err = c.Plan(t.Context(), node.Request{})
			require.Error(t, err)
			err = c.LogIn(t.Context())
			require.ErrorIs(t, err, remote.ErrUnauthorized)
			require.ErrorContains(t, err, "is there a forced command?")
			require.ErrorIs(t, remote.Reach(t.Context(), conn, remote.ClientOptions{Dir: "bin-refit"}), remote.ErrUnauthorized)
		})
	}
}
