package nodetest

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	gssh "github.com/gliderlabs/ssh"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/capi-refit/refit/internal/node/remote"
)

// Options of a stand-in. The zero value is good.
type Options struct {
	// Name is what the node is called. Default: "stand-in".
	Name string
	// User is who may log in. Default: "refit".
	User string
	// Root is the node's root directory. Default: a temporary one, removed by Close.
	Root string
	// UserKey is the private key, in PEM, of who may log in. Default: a new one.
	UserKey []byte
	// HostCA makes the node show a certificate of this authority for Principals instead of its plain host key.
	HostCA     ssh.Signer
	Principals []string
	// HostKeys are shown besides the node's own, for kinds other than ed25519.
	HostKeys []ssh.Signer
	// UserCA is an authority, as a line of authorized_keys, whose certificates for User are taken besides UserKey.
	UserCA string
	// ForceCommand is run whatever somebody who logs in by UserKey asks for, as command= in authorized_keys says.
	ForceCommand string
	// Forward lets the node be a jump host.
	Forward bool
	// Noise is written to stdout ahead of each command's own output, as a talkative profile does.
	Noise string
	// Listen is the address on loopback at which the node listens. Default: a port of 127.0.0.1.
	Listen string
	// Run answers a command in a shell's place, and returns its exit status. The node has no root then. Nil: a shell runs it.
	Run func(command string, stdin io.Reader, stdout io.Writer) int
}

// Node is a running stand-in.
type Node struct {
	opts     Options
	listener net.Listener
	ownRoot  bool
	userKey  ssh.PublicKey
	served   sync.WaitGroup
	work     processes
	faults   faults

	mu       sync.Mutex
	hostKey  ssh.Signer
	conns    map[*conn]struct{}
	closed   bool
	dialled  int
	commands []string
}

// Start starts a stand-in. Close ends it.
func Start(o Options) (*Node, error) {
	if o.Name == "" {
		o.Name = "stand-in"
	}
	if o.User == "" {
		o.User = "refit"
	}
	n := &Node{opts: o, conns: map[*conn]struct{}{}}
	n.faults.init()
	if err := n.makeKeys(); err != nil {
		return nil, fmt.Errorf("stand-in %s: %w", o.Name, err)
	}
	if o.Run == nil {
		if err := n.makeRoot(); err != nil {
			return nil, fmt.Errorf("stand-in %s: %w", o.Name, err)
		}
	}
	var err error
	if n.listener, err = net.Listen("tcp", cmp.Or(o.Listen, "127.0.0.1:0")); err != nil {
		return nil, errors.Join(fmt.Errorf("stand-in %s: %w", o.Name, err), n.removeRoot())
	}
	n.served.Go(n.serve)
	return n, nil
}

// Close ends the node with all its connections and commands, and removes its root if it is a temporary one.
func (n *Node) Close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	err := n.listener.Close()
	n.faults.release()
	n.Disconnect()
	n.work.kill()
	n.served.Wait()
	return errors.Join(err, n.removeRoot())
}

func (n *Node) removeRoot() error {
	if !n.ownRoot {
		return nil
	}
	return os.RemoveAll(n.opts.Root)
}

func (n *Node) makeKeys() error {
	if len(n.opts.UserKey) == 0 {
		key, err := NewKey()
		if err != nil {
			return err
		}
		n.opts.UserKey = key
	}
	user, err := ssh.ParsePrivateKey(n.opts.UserKey)
	if err != nil {
		return fmt.Errorf("read the user's key: %w", err)
	}
	n.userKey = user.PublicKey()
	return n.ChangeHostKey()
}

// NewKey makes a private key, in PEM.
func NewKey() ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(block), nil
}

// Name is what the node is called.
func (n *Node) Name() string { return n.opts.Name }

// User is who may log in.
func (n *Node) User() string { return n.opts.User }

// UserKey is the private key of who may log in, in PEM.
func (n *Node) UserKey() []byte { return n.opts.UserKey }

// Root is the directory that is the node's root.
func (n *Node) Root() string { return n.opts.Root }

// Address is where the node listens.
func (n *Node) Address() remote.Address {
	//nolint:forcetypeassert // A TCP listener has a TCP address.
	a := n.listener.Addr().(*net.TCPAddr)
	return remote.Address{Host: a.IP.String(), Port: a.Port}
}

// HostKey is the host key as a line of authorized_keys.
func (n *Node) HostKey() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return string(ssh.MarshalAuthorizedKey(n.hostKey.PublicKey()))
}

// KnownHosts is the node's line of known_hosts.
func (n *Node) KnownHosts() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return []byte(knownhosts.Line([]string{n.Address().String()}, n.hostKey.PublicKey()) + "\n")
}

// Target returns how to reach the node, recognized by KnownHosts.
func (n *Node) Target() (remote.Target, error) {
	keys, err := remote.KnownHosts(n.KnownHosts())
	if err != nil {
		return remote.Target{}, err
	}
	return remote.Target{Addresses: []remote.Address{n.Address()}, User: n.opts.User, PrivateKey: n.opts.UserKey, HostKeys: keys}, nil
}

// Connections counts the connections that came, also those that got no further.
func (n *Node) Connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dialled
}

// Commands are those that were run, in order. Each had a session of its own.
func (n *Node) Commands() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.commands...)
}

func (n *Node) signers() ([]gssh.Signer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	own := n.hostKey
	if n.opts.HostCA != nil {
		cert := &ssh.Certificate{
			Key: own.PublicKey(), CertType: ssh.HostCert, ValidPrincipals: n.opts.Principals, ValidBefore: ssh.CertTimeInfinity,
		}
		if err := cert.SignCert(rand.Reader, n.opts.HostCA); err != nil {
			return nil, err
		}
		var err error
		if own, err = ssh.NewCertSigner(cert, own); err != nil {
			return nil, err
		}
	}
	signers := []gssh.Signer{own}
	for _, s := range n.opts.HostKeys {
		signers = append(signers, s)
	}
	return signers, nil
}
