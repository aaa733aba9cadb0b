package remote_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

// behind returns targets behind a jump host whose connections are shared.
func behind(t *testing.T, jump *nodetest.Node, nodes ...*nodetest.Node) []remote.Target {
	out := make([]remote.Target, len(nodes))
	for i, n := range nodes {
		by := target(t, jump)
		by.Shared = "jump"
		out[i] = target(t, n)
		out[i].Jump = &by
	}
	return out
}

func TestNodesShareTheConnectionToTheirJumpHost(t *testing.T) {
	jump := start(t, nodetest.Options{Name: "jump", Forward: true})
	one, two := start(t, nodetest.Options{}), start(t, nodetest.Options{})
	targets, d := behind(t, jump, one, two), remote.SSHDialer{Jumps: &remote.JumpHosts{}}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			c, err := d.Dial(t.Context(), targets[i%2])
			if assert.NoError(t, err) {
				assert.NoError(t, c.Run(t.Context(), "true", nil, nil))
				assert.NoError(t, c.Close())
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, jump.Connections())
	require.Equal(t, 20, one.Connections()+two.Connections(), "each has a connection to the node itself")

	other := behind(t, jump, one)[0]
	other.Jump.Shared = "by another key"
	c, err := d.Dial(t.Context(), other)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.Equal(t, 2, jump.Connections(), "what is logged in to otherwise is not shared")
}

func TestAConnectionToAJumpHostThatHasBrokenIsMadeAgain(t *testing.T) {
	jump, n := start(t, nodetest.Options{Name: "jump", Forward: true}), start(t, nodetest.Options{})
	to, d := behind(t, jump, n)[0], remote.SSHDialer{Jumps: &remote.JumpHosts{}}
	c, err := d.Dial(t.Context(), to)
	require.NoError(t, err)
	jump.Disconnect()
	require.ErrorIs(t, c.Run(t.Context(), "true", nil, nil), remote.ErrConnectionLost)
	require.NoError(t, c.Close())

	c, err = d.Dial(t.Context(), to)
	require.NoError(t, err)
	require.NoError(t, c.Run(t.Context(), "true", nil, nil))
	require.NoError(t, c.Close())
	require.Equal(t, 2, jump.Connections())
}

// TestWhoLeavesDoesNotTakeTheJumpHostFromOthers: the first one to come is cut short, and the node of one does not answer.
func TestWhoLeavesDoesNotTakeTheJumpHostFromOthers(t *testing.T) {
	jump := start(t, nodetest.Options{Name: "jump", Forward: true})
	mute, n := start(t, nodetest.Options{}), start(t, nodetest.Options{})
	mute.Freeze()
	targets, d := behind(t, jump, mute, n), remote.SSHDialer{Jumps: &remote.JumpHosts{}}
	c, err := d.Dial(t.Context(), targets[1])
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = d.Dial(ctx, targets[0])
	require.ErrorIs(t, err, context.DeadlineExceeded)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = d.Dial(gone, targets[1])
	require.ErrorIs(t, err, context.Canceled)

	require.NoError(t, c.Run(t.Context(), "true", nil, nil))
	require.NoError(t, c.Close())
	require.Equal(t, 1, jump.Connections())
}

// TestNodesThatDoNotAnswerDoNotUseUpAJumpHost: its sshd goes on connecting to them, and has only so many descriptors for a connection.
func TestNodesThatDoNotAnswerDoNotUseUpAJumpHost(t *testing.T) {
	jump, n := start(t, nodetest.Options{Name: "jump", Forward: true}), start(t, nodetest.Options{})
	to, d := behind(t, jump, n)[0], remote.SSHDialer{Jumps: &remote.JumpHosts{}}
	c, err := d.Dial(t.Context(), to)
	require.NoError(t, err)
	dark := to
	dark.Timeouts.Dial = time.Nanosecond
	for range 20 {
		require.Equal(t, 1, jump.Connections())
		_, err := d.Dial(t.Context(), dark)
		require.ErrorIs(t, err, remote.ErrUnreachable)
	}
	other, err := d.Dial(t.Context(), to)
	require.NoError(t, err)
	require.Equal(t, 2, jump.Connections(), "who comes now has another connection")
	require.NoError(t, c.Run(t.Context(), "true", nil, nil), "and who was there the one that it had")
	require.NoError(t, c.Close())
	require.NoError(t, other.Close())
}

// TestWhatANodeSaysIsTheSameEachTime: a message with refit's own port would be another one for each try, and a write.
func TestWhatANodeSaysIsTheSameEachTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close() // with a reset
		}
	}()
	to := target(t, start(t, nodetest.Options{}))
	a, err := remote.ParseAddress(l.Addr().String())
	require.NoError(t, err)
	to.Addresses = []remote.Address{a}
	seen := map[string]bool{}
	for range 50 { // its end is met in connecting, reading or writing
		_, err := remote.SSHDialer{}.Dial(t.Context(), to)
		require.ErrorIs(t, err, remote.ErrUnreachable)
		require.NotContains(t, err.Error(), "->")
		seen[err.Error()] = true
	}
	require.Len(t, seen, 1, "%v", seen)
}

// TestJumpHostsAreTriedAgain: an error is told to all who wait for the connection, and not to those who come later.
func TestJumpHostsAreTriedAgain(t *testing.T) {
	jump, n := start(t, nodetest.Options{Name: "jump", Forward: true}), start(t, nodetest.Options{})
	to, d := behind(t, jump, n)[0], remote.SSHDialer{Jumps: &remote.JumpHosts{}}
	good := to.Jump.Addresses
	to.Jump.Addresses = []remote.Address{unused(t)}
	_, err := d.Dial(t.Context(), to)
	require.ErrorIs(t, err, remote.ErrUnreachable)
	require.ErrorContains(t, err, "jump host: ")
	to.Jump.Addresses = good
	c, err := d.Dial(t.Context(), to)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}
