package remote_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

// soon is long enough for a busy machine.
const soon = time.Minute

// forever outlasts the test: who waits for its end fails with go test's timeout.
const forever = "sleep 3600"

func TestCancel(t *testing.T) {
	t.Run("a handshake ends", func(t *testing.T) {
		n := start(t, nodetest.Options{})
		n.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := remote.SSHDialer{}.Dial(ctx, target(t, n))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, remote.ErrUnreachable)
	})
	t.Run("a command ends, the connection stays", func(t *testing.T) {
		c := dial(t, target(t, start(t, nodetest.Options{})))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		require.ErrorIs(t, c.Run(ctx, forever, nil, nil), context.Canceled)
		require.NoError(t, c.Run(t.Context(), "true", nil, nil))
	})
	t.Run("a command on a machine without power ends", func(t *testing.T) {
		n := start(t, nodetest.Options{})
		c := dial(t, target(t, n))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		n.Freeze()
		require.ErrorIs(t, c.Run(ctx, "true", nil, nil), context.DeadlineExceeded)
	})
	t.Run("a command that waits for its turn ends", func(t *testing.T) {
		c := dial(t, target(t, start(t, nodetest.Options{})))
		for range 8 {
			go func() { _ = c.Run(t.Context(), forever, nil, nil) }()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, c.Run(ctx, forever, nil, nil), context.DeadlineExceeded)
	})
}

func TestConnectionLost(t *testing.T) {
	t.Run("a machine without power is noticed", func(t *testing.T) {
		n := start(t, nodetest.Options{})
		to := target(t, n)
		to.Timeouts.Keepalive, to.Timeouts.Patience = 20*time.Millisecond, 50*time.Millisecond
		c := dial(t, to)
		time.AfterFunc(100*time.Millisecond, n.Freeze)
		err := c.Run(t.Context(), forever, nil, nil)
		require.ErrorIs(t, err, remote.ErrConnectionLost)
		assert.ErrorContains(t, err, "did not answer in time")
	})
	t.Run("a connection that is cut is noticed", func(t *testing.T) {
		n := start(t, nodetest.Options{})
		c := dial(t, target(t, n))
		time.AfterFunc(100*time.Millisecond, n.Disconnect)
		require.ErrorIs(t, c.Run(t.Context(), forever, nil, nil), remote.ErrConnectionLost)
		require.ErrorIs(t, c.Run(t.Context(), "true", nil, nil), remote.ErrConnectionLost)
	})
	t.Run("commands that start while it is cut end", func(t *testing.T) {
		n := start(t, nodetest.Options{})
		c := dial(t, target(t, n))
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for c.Run(t.Context(), "true", nil, nil) == nil {
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		n.Disconnect()
		all.Wait()
	})
	t.Run("a quiet machine is left alone", func(t *testing.T) {
		to := target(t, start(t, nodetest.Options{}))
		to.Timeouts.Keepalive, to.Timeouts.Patience = 10*time.Millisecond, soon
		require.NoError(t, dial(t, to).Run(t.Context(), "sleep 0.3", nil, nil))
	})
	t.Run("Close twice is fine", func(t *testing.T) {
		c := dial(t, target(t, start(t, nodetest.Options{})))
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.Run(t.Context(), "true", nil, nil), remote.ErrConnectionLost)
	})
}

func TestJump(t *testing.T) {
	n, jump := start(t, nodetest.Options{}), start(t, nodetest.Options{Name: "jump", User: "bastion", Forward: true})
	through := func(change func(to, by *remote.Target)) (remote.Conn, error) {
		to, by := target(t, n), target(t, jump)
		to.Jump = &by
		if change != nil {
			change(&to, &by)
		}
		return remote.SSHDialer{}.Dial(t.Context(), to)
	}

	c, err := through(nil)
	require.NoError(t, err)
	require.NoError(t, c.Run(t.Context(), "true", nil, nil))
	require.NoError(t, c.Close())
	assert.Empty(t, jump.Commands())
	before := n.Connections()

	for name, test := range map[string]struct {
		change func(to, by *remote.Target)
		is     error
		as     bool
		want   string
	}{
		"the jump host is another one": {change: func(to, by *remote.Target) { by.HostKeys = to.HostKeys }, as: true, want: "jump host: "},
		"the jump host refuses us":     {change: func(to, by *remote.Target) { by.User = "nobody" }, is: remote.ErrUnauthorized, want: "jump host: "},
		"the jump host forbids it": {change: func(_, by *remote.Target) { *by = target(t, start(t, nodetest.Options{})) },
			is: remote.ErrUnauthorized, want: "forbids forwarding"},
		"the jump host is not there": {change: func(_, by *remote.Target) { by.Addresses = []remote.Address{unused(t)} }, is: remote.ErrUnreachable, want: "jump host: "},
		"the node is not there":      {change: func(to, _ *remote.Target) { to.Addresses = []remote.Address{unused(t)} }, is: remote.ErrUnreachable, want: "through jump host"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := through(test.change)
			require.ErrorContains(t, err, test.want)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
			var refused *remote.HostKeyError
			assert.Equal(t, test.as, errors.As(err, &refused))
			assert.Equal(t, before, n.Connections())
		})
	}

	t.Run("the node behind it is another one", func(t *testing.T) {
		_, err := through(func(to, by *remote.Target) { to.HostKeys = by.HostKeys })
		var refused *remote.HostKeyError
		require.ErrorAs(t, err, &refused)
	})
	t.Run("a node behind it without power can be left", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		mute := start(t, nodetest.Options{})
		mute.Freeze()
		to, by := target(t, mute), target(t, jump)
		to.Jump = &by
		_, err := remote.SSHDialer{}.Dial(ctx, to)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, remote.ErrUnreachable)
	})
}

// unused is an address where nothing listens.
func unused(t *testing.T) remote.Address {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	a, err := remote.ParseAddress(l.Addr().String())
	require.NoError(t, err)
	return a
}
