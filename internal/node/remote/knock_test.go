package remote_test

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

// listen takes connections and does with each what serve does.
func listen(t *testing.T, serve func(net.Conn)) remote.Address {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	at := l.Addr().(*net.TCPAddr)
	return remote.Address{Host: at.IP.String(), Port: at.Port}
}

func TestKnock(t *testing.T) {
	n := start(t, nodetest.Options{})
	sshd := target(t, n).Addresses
	gone := listen(t, func(net.Conn) {})
	for name, tc := range map[string]struct {
		at  []remote.Address
		err string
	}{
		"sshd":               {at: sshd},
		"one that ends it":   {at: []remote.Address{listen(t, func(c net.Conn) { _ = c.Close() })}, err: "no answer"},
		"one that is silent": {at: []remote.Address{gone}, err: "no answer within 200ms"},
		"one that waits to be greeted": {at: []remote.Address{listen(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4))
			_, _ = c.Write([]byte("SSH-2.0-x\r\n"))
		})}},
		"the second address": {at: append([]remote.Address{gone}, sshd...)},
		"nobody":             {at: []remote.Address{{Host: "127.0.0.1", Port: 1}}, err: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			// No credentials: nobody logs in.
			err := remote.SSHDialer{}.Knock(t.Context(), remote.Target{Addresses: tc.at, Timeouts: remote.Timeouts{Handshake: 200 * time.Millisecond}})
			if tc.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.err)
		})
	}
}

func TestAKnockEndsWithItsContext(t *testing.T) {
	at := listen(t, func(net.Conn) {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, remote.SSHDialer{}.Knock(ctx, remote.Target{Addresses: []remote.Address{at}}), context.Canceled)
}

func TestNobodyKnocksOutsideOfWhatIsAllowed(t *testing.T) {
	asked := false
	at := listen(t, func(net.Conn) { asked = true })
	to := remote.Target{Addresses: []remote.Address{at}, Within: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	require.ErrorContains(t, remote.SSHDialer{}.Knock(t.Context(), to), "none of the ranges")
	require.False(t, asked)
}

func TestNobodyKnocksThroughAJumpHost(t *testing.T) {
	require.ErrorContains(t, remote.SSHDialer{}.Knock(t.Context(), remote.Target{Jump: &remote.Target{}}), "jump host")
}
