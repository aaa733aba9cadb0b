package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/crypto/ssh"
)

// jumpError means that the jump host was not reached, as against the node behind it.
type jumpError struct{ err error }

func (e *jumpError) Error() string { return "jump host: " + e.err.Error() }
func (e *jumpError) Unwrap() error { return e.err }

// jumpConn is a connection through a jump host. The connection to the jump host is its own and ends with it: closing only
// the channel in it would wait for a peer that may be gone.
type jumpConn struct {
	net.Conn
	jump *client
}

// Close implements net.Conn.
func (c *jumpConn) Close() error {
	err := c.jump.raw.Close()
	_ = c.Conn.Close() // nobody is there any more to be told
	return err
}

// through connects to address from t, a jump host. The limit is for the way from there.
func (t Target) through(ctx context.Context, address Address, limit time.Duration) (net.Conn, error) {
	if t.jumps != nil && t.Shared != "" {
		return t.jumps.through(ctx, t, address, limit)
	}
	jump, err := t.connect(ctx)
	if err != nil {
		return nil, &jumpError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := jump.DialContext(ctx, "tcp", address.String())
	if err != nil {
		_ = jump.raw.Close()
		return nil, notForwarded(err, jump, address)
	}
	return &jumpConn{Conn: conn, jump: jump}, nil
}

// notForwarded tells a jump host that forbids a connection from a node that can't be reached.
func notForwarded(err error, jump *client, address Address) error {
	var refused *ssh.OpenChannelError
	if errors.As(err, &refused) && refused.Reason == ssh.Prohibited {
		return &jumpError{fmt.Errorf("%w: %s forbids forwarding to %s; see AllowTcpForwarding and PermitOpen in its sshd_config", ErrUnauthorized, jump.RemoteAddr(), address)}
	}
	return fmt.Errorf("%w through jump host %s: %s", ErrUnreachable, jump.RemoteAddr(), begin(peerError(err), 300))
}
