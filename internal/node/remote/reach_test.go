package remote_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

func TestReach(t *testing.T) {
	n := start(t, nodetest.Options{})
	conn := dial(t, target(t, n))
	reach := func(o remote.ClientOptions) error { return remote.Reach(t.Context(), conn, o) }

	require.NoError(t, reach(remote.ClientOptions{Dir: "bin-refit"}))
	require.Empty(t, inDir(t, n), "nothing is brought")
	require.NoDirExists(t, filepath.Join(n.Root(), "bin-refit"))

	tool(t, n.Root(), "sudo", `[ "$1 $2" = "-n --" ] || exit 1; shift 2; exec "$@"`)
	require.NoError(t, reach(remote.ClientOptions{Dir: "bin-refit", Sudo: true}))
	tool(t, n.Root(), "sudo", `echo 'sudo: a password is required' >&2; exit 1`)
	err := reach(remote.ClientOptions{Dir: "bin-refit", Sudo: true})
	require.ErrorIs(t, err, remote.ErrUnauthorized)
	require.ErrorContains(t, err, "a password is required")

	dir := filepath.Join(n.Root(), "bin-refit")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, reach(remote.ClientOptions{Dir: "bin-refit"}))
	require.NoError(t, os.Chmod(dir, 0o777))
	require.ErrorContains(t, reach(remote.ClientOptions{Dir: "bin-refit"}), "others on the node could exchange it")

	require.ErrorContains(t, reach(remote.ClientOptions{Gate: true}), "gate")
}
