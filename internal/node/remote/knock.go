package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// A Knocker is a Dialer that can find out whether anything answers at a node without logging in there.
type Knocker interface {
	// Knock returns nil if something answers at one of the addresses of t, whatever that is. It takes no credentials, and can't go through a jump host.
	Knock(ctx context.Context, t Target) error
}

var _ Knocker = SSHDialer{}

// Knock implements Knocker. A server of SSH tells its version to whoever connects (RFC 4253, section 4.2).
func (d SSHDialer) Knock(ctx context.Context, t Target) error {
	if t.Jump != nil {
		return fmt.Errorf("knock at %v: it is behind a jump host", t.Addresses)
	}
	failed := &DialError{User: t.User}
	for _, address := range t.Addresses {
		err := t.knock(ctx, address)
		if err == nil {
			return nil
		}
		if ended := ended(ctx); ended != nil {
			return fmt.Errorf("knock at %s: %w", address, ended)
		}
		failed.Attempts = append(failed.Attempts, Attempt{Address: address.String(), Err: err})
	}
	return failed
}

func (t Target) knock(ctx context.Context, address Address) error {
	raw, err := t.dialRaw(ctx, address)
	if err != nil {
		return err
	}
	defer raw.Close() //nolint:errcheck // nothing was asked
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	limit := t.Timeouts.withDefaults().Handshake
	if err := answers(raw, time.Now().Add(limit)); err != nil {
		return fmt.Errorf("%w: no answer within %s: %s", ErrUnreachable, limit, peerError(err))
	}
	return nil
}

// answers waits for the first byte that a server sends. Some send none before they are greeted.
func answers(raw net.Conn, by time.Time) error {
	if err := raw.SetDeadline(by); err != nil {
		return err
	}
	if _, err := raw.Write([]byte(clientVersion + "\r\n")); err != nil {
		return err
	}
	n, err := raw.Read(make([]byte, 1))
	if n == 0 && err == nil {
		err = errors.New("it has sent nothing")
	}
	return err
}
