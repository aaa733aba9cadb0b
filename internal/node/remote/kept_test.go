package remote_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

func TestAConnectionIsKeptForWhoComesNext(t *testing.T) {
	n := start(t, nodetest.Options{})
	d, to := remote.SSHDialer{Kept: &remote.Kept{}}, target(t, n)
	use := func(key string, logins int) remote.Conn {
		t.Helper()
		to.Kept = key
		c, err := d.Dial(t.Context(), to)
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, c.Run(t.Context(), "echo hello", nil, &out))
		require.Equal(t, "hello\n", out.String())
		require.Equal(t, logins, n.Connections())
		return c
	}
	c := use("one", 1)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	next := use("one", 1)
	require.NoError(t, c.Close(), "who has given it back does not take it from who has it now")
	require.NoError(t, next.Run(t.Context(), "true", nil, nil))
	other := use("one", 2)
	require.NoError(t, next.Close())
	require.NoError(t, other.Close(), "one is kept")
	require.NoError(t, use("one", 2).Close())
	require.NoError(t, use("another login", 3).Close())
	require.NoError(t, use("", 4).Close())
	require.NoError(t, use("", 5).Close(), "who does not ask for it has a login of their own")

	n.Disconnect()
	require.NoError(t, use("one", 6).Close(), "one that has broken is made again")
}

// TestAConnectionOverWhichSomethingRunsIsNotKept demands that Close ends it.
func TestAConnectionOverWhichSomethingRunsIsNotKept(t *testing.T) {
	n := start(t, nodetest.Options{})
	d, to := remote.SSHDialer{Kept: &remote.Kept{}}, target(t, n)
	to.Kept = "one"
	c, err := d.Dial(t.Context(), to)
	require.NoError(t, err)
	started := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context(), "echo started; exec sleep 60", nil, closing(started)) }()
	<-started
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-ended, remote.ErrConnectionLost)
	c, err = d.Dial(t.Context(), to)
	require.NoError(t, err)
	require.Equal(t, 2, n.Connections())
	require.NoError(t, c.Close())
}

// closing is closed by what is written first.
type closing chan struct{}

func (c closing) Write(p []byte) (int, error) {
	close(c)
	return len(p), nil
}
