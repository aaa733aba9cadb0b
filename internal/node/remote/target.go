package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"
)

// A Dialer connects to nodes.
type Dialer interface {
	// Dial connects to the first address of t that works. The host is verified and the user let in when it returns.
	Dial(ctx context.Context, t Target) (Conn, error)
}

// A Conn is a connection to a node. It can be used by several goroutines at once.
type Conn interface {
	// Run runs command in the user's login shell and returns when it has ended, or as soon as ctx is done. Then, stdout is
	// not written to any more, but stdin may still be read from; the command gets no signal, only the end of its stdin. A
	// command that fails is a *CommandError. An error of stdout's Write ends Run and is returned.
	Run(ctx context.Context, command string, stdin io.Reader, stdout io.Writer) error
	// Close ends all that runs over the connection.
	Close() error
}

// Address is where sshd listens.
type Address struct {
	Host string
	// Port is 22 if it is 0.
	Port int
}

// ParseAddress reads "host", "host:port" or "[v6]:port".
func ParseAddress(s string) (Address, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = s, "22"
		if ip := net.ParseIP(s); ip == nil {
			if _, _, err = net.SplitHostPort(s + ":22"); err != nil {
				return Address{}, fmt.Errorf("address %q: want host or host:port", s)
			}
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" {
		return Address{}, fmt.Errorf("address %q: want host or host:port", s)
	}
	return Address{Host: host, Port: int(n)}, nil
}

// String returns host:port.
func (a Address) String() string {
	if a.Port == 0 {
		a.Port = 22
	}
	return net.JoinHostPort(a.Host, strconv.Itoa(a.Port))
}

// Target is a node as one reaches it over SSH.
type Target struct {
	// Addresses are tried in order.
	Addresses []Address
	User      string
	// Signers, PrivateKey and Certificates are what we authenticate with. At least one is needed.
	Signers []ssh.Signer
	// PrivateKey is a private key in PEM without a passphrase. It never shows in an error.
	PrivateKey []byte
	// Certificates are made again for each connection. Nil: none.
	Certificates *UserCertificates
	// HostKeys says by what the node is recognized. There is no way around it.
	HostKeys HostKeys
	// HostKeyAlias is the name under which HostKeys is asked, for nodes whose addresses change or whose certificates
	// carry a name only. Empty: the address that is dialled.
	HostKeyAlias string
	// Within bounds the addresses that are connected to, after names were resolved; not that of Jump. Empty: all.
	Within []netip.Prefix
	// Jump is a host to go through, verified by its own HostKeys. It may have a Jump itself.
	Jump *Target
	// Shared, of a jump host, has one connection serve for all targets of which it is the same: a digest of all that the connection is made
	// with. Empty: it is not shared.
	Shared string
	// Kept, of a node, has a connection be kept for a while after it was closed, for who connects to a target of which Kept is the same: a digest
	// of all that the connection is made with. Empty: it is not kept.
	Kept string
	// Timeouts has defaults for what is 0.
	Timeouts Timeouts

	// jumps are what is shared.
	jumps *JumpHosts
}

// Timeouts bound how long a peer may be silent.
type Timeouts struct {
	// Dial bounds the TCP connection to one address. Default: 10 s.
	Dial time.Duration
	// Handshake bounds key exchange and authentication on it. Default: 15 s.
	Handshake time.Duration
	// Keepalive is the time between two questions to the peer whether it is still there. Default: 15 s.
	Keepalive time.Duration
	// Patience is how long such a question may stay without an answer; then the connection is lost. Default: 30 s.
	Patience time.Duration
}

func (t Timeouts) withDefaults() Timeouts {
	set := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	set(&t.Dial, 10*time.Second)
	set(&t.Handshake, 15*time.Second)
	set(&t.Keepalive, 15*time.Second)
	set(&t.Patience, 30*time.Second)
	return t
}

// signers returns all keys. Its errors don't wrap those of the parser, which has seen the key.
func (t Target) signers() ([]ssh.Signer, error) {
	signers := append([]ssh.Signer(nil), t.Signers...)
	if len(t.PrivateKey) > 0 {
		s, err := ssh.ParsePrivateKey(t.PrivateKey)
		var locked *ssh.PassphraseMissingError
		switch {
		case errors.As(err, &locked):
			return nil, errors.New("the private key has a passphrase; use one without")
		case err != nil:
			return nil, errors.New("the private key can't be read; it must be PEM, as ssh-keygen writes it")
		}
		signers = append(signers, s)
	}
	if len(signers) == 0 && t.Certificates == nil {
		return nil, errors.New("no private key")
	}
	return signers, nil
}

func (t Target) validate() error {
	switch {
	case len(t.Addresses) == 0:
		return errors.New("target has no address")
	case t.User == "":
		return errors.New("target has no user")
	case t.HostKeys == nil:
		return errors.New("target says nothing about host keys, and they are always verified")
	}
	return nil
}
