package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// clientVersion is what refit calls itself to servers of SSH.
const clientVersion = "SSH-2.0-refit"

// SSHDialer reaches nodes over SSH.
type SSHDialer struct {
	// Jumps have connections to jump hosts be shared by the nodes behind them. Nil: each node has its own.
	Jumps *JumpHosts
	// Kept are the connections that are kept. Nil: none are.
	Kept *Kept
}

var _ Dialer = SSHDialer{}

// Dial implements Dialer. A failure is a *DialError that lists each address, or ctx's own error if ctx is done.
func (d SSHDialer) Dial(ctx context.Context, t Target) (Conn, error) {
	t.jumps = d.Jumps
	if d.Kept != nil && t.Kept != "" {
		return d.Kept.dial(ctx, t)
	}
	c, err := t.connect(ctx)
	if err != nil {
		return nil, err
	}
	return newSSHConn(c, t.Timeouts.withDefaults()), nil
}

// client is an authenticated connection and what it goes over.
type client struct {
	*ssh.Client
	// raw is closed to end things at once: no handshake, no peer is waited for.
	raw net.Conn
}

func (t Target) connect(ctx context.Context) (*client, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	signers, err := t.signers()
	if err != nil {
		return nil, err
	}
	failed := &DialError{User: t.User}
	for _, address := range t.Addresses {
		c, err := t.connectTo(ctx, address, signers)
		if err == nil {
			return c, nil
		}
		if ended := ended(ctx); ended != nil {
			return nil, fmt.Errorf("connect to %s: %w", address, ended)
		}
		var jump *jumpError
		if errors.As(err, &jump) {
			// All addresses are behind the jump host: it won't be better with the next one.
			return nil, err
		}
		failed.Attempts = append(failed.Attempts, Attempt{Address: address.String(), Err: err})
	}
	return nil, failed
}

// ended returns why a context has ended. A dialer can meet its deadline a moment before it shows.
func ended(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return context.Cause(ctx)
}

func (t Target) connectTo(ctx context.Context, address Address, signers []ssh.Signer) (*client, error) {
	raw, err := t.dialRaw(ctx, address)
	if err != nil {
		return nil, err
	}
	signers, err = t.certified(signers)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	c, key, err := t.handshake(ctx, raw, address, signers)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	if err := t.HostKeys.Accepted(ctx, key); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return c, nil
}

func (t Target) dialRaw(ctx context.Context, address Address) (net.Conn, error) {
	limit := t.Timeouts.withDefaults().Dial
	if t.Jump != nil {
		if len(t.Within) > 0 && !Within(t.Within, address.Host) { // who resolves a name there is not known
			return nil, fmt.Errorf("%w: %w", ErrUnreachable, outside(address.Host))
		}
		jump := *t.Jump
		jump.jumps = t.jumps
		return jump.through(ctx, address, limit)
	}
	raw, err := (&net.Dialer{Timeout: limit, Control: t.control}).DialContext(ctx, "tcp", address.String())
	if err != nil {
		// Not wrapped: a time-out here is not the caller's deadline.
		return nil, fmt.Errorf("%w: %s", ErrUnreachable, peerError(err))
	}
	return raw, nil
}

// control is asked about each address before anything is sent there.
func (t Target) control(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if len(t.Within) > 0 && !Within(t.Within, host) {
		return outside(host)
	}
	return nil
}

// Within reports whether an IP address is in one of the ranges. A name is in none.
func Within(ranges []netip.Prefix, host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(ip.Unmap()) })
}

func outside(host string) error {
	return fmt.Errorf("%s is in none of the ranges of addresses that may be connected to, so nothing was sent to it", host)
}

// handshake verifies the host and lets us in. It returns the key that the host has proved to have.
func (t Target) handshake(ctx context.Context, raw net.Conn, address Address, signers []ssh.Signer) (*client, ssh.PublicKey, error) {
	limit := t.Timeouts.withDefaults().Handshake
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()

	host := address.String()
	if t.HostKeyAlias != "" {
		host = Address{Host: t.HostKeyAlias}.String()
	}
	var (
		proved  ssh.PublicKey
		refused error
	)
	config := &ssh.ClientConfig{
		User:              t.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signers...)},
		HostKeyAlgorithms: t.HostKeys.Algorithms(host),
		HostKeyCallback: func(_ string, remote net.Addr, key ssh.PublicKey) error {
			if refused = t.HostKeys.Check(host, remote, key); refused == nil {
				proved = key
			}
			return refused
		},
		ClientVersion: clientVersion,
	}
	conn, channels, requests, err := ssh.NewClientConn(raw, address.String(), config)
	switch {
	case err == nil:
		return &client{Client: ssh.NewClient(conn, channels, requests), raw: raw}, proved, nil
	case refused != nil:
		return nil, nil, refused
	case ctx.Err() != nil:
		return nil, nil, fmt.Errorf("%w: no end of the SSH handshake within %s", ErrUnreachable, limit)
	}
	return nil, nil, t.explainHandshake(err, host, proved != nil)
}

// explainHandshake tells a host that can't prove itself, a host that turns us away, and a broken connection apart.
func (t Target) explainHandshake(err error, host string, verified bool) error {
	var negotiation *ssh.AlgorithmNegotiationError
	if errors.As(err, &negotiation) && negotiation.What == "host key" {
		return &HostKeyError{
			Host: host, Want: "one of " + strings.Join(t.HostKeys.Algorithms(host), ", "),
			Reason: printable("the host has keys for " + strings.Join(negotiation.RequestedAlgorithms, ", ") + " only"),
		}
	}
	text := begin(peerError(err), 300)
	// The library has no type for either of these. A host that closes the connection is neither: it may be booting.
	if verified && (strings.Contains(text, "unable to authenticate") || strings.Contains(text, "ssh: disconnect, reason")) {
		return fmt.Errorf("%w: the host refuses user %q with %s", ErrUnauthorized, t.User, t.refused(text))
	}
	return fmt.Errorf("%w: %s", ErrUnreachable, text)
}

// refused returns what was refused, and what to look at.
func (t Target) refused(text string) string {
	if c := t.Certificates; c != nil {
		return fmt.Sprintf("a certificate for %q of the authority %s (%s); does sshd trust the authority (TrustedUserCAKeys) and take that principal for the user, "+
			"is refit's address among those of the certificate, and is the node's clock right?", c.principal, ssh.FingerprintSHA256(c.authority.PublicKey()), text)
	}
	return fmt.Sprintf("the given key (%s); is the key in the user's authorized_keys?", text)
}
