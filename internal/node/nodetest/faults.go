package nodetest

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"
)

// faults are what a test has broken.
type faults struct {
	mu        sync.Mutex
	refuse    bool
	dropAfter int64
	// awake is closed while the node answers.
	awake  chan struct{}
	frozen bool
	over   bool
}

func (f *faults) init() {
	f.awake = make(chan struct{})
	close(f.awake)
}

// Refuse makes the node reset every new connection, until it is called with false.
func (n *Node) Refuse(refuse bool) {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.refuse = refuse
}

// DropAfter makes the node cut each new connection when it has received so many bytes on it. 0: never.
func (n *Node) DropAfter(bytes int64) {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.dropAfter = bytes
}

// Freeze makes the node say nothing any more on old and new connections, as a machine without power, until Thaw. Its
// commands go on.
func (n *Node) Freeze() {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	if !n.faults.frozen && !n.faults.over {
		n.faults.frozen, n.faults.awake = true, make(chan struct{})
	}
}

// Thaw ends Freeze.
func (n *Node) Thaw() {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	if n.faults.frozen {
		n.faults.frozen = false
		close(n.faults.awake)
	}
}

// release lets nothing wait any more.
func (f *faults) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	if f.frozen {
		f.frozen = false
		close(f.awake)
	}
}

// Disconnect cuts all connections.
func (n *Node) Disconnect() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		_ = c.Close()
	}
}

// ChangeHostKey gives the node another host key, as if it had been made again.
func (n *Node) ChangeHostKey() error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	signer, err := ssh.NewSignerFromSigner(key)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hostKey = signer
	return nil
}

var errDropped = errors.New("the stand-in drops the connection, as it was told to")

// conn is a connection with the node's faults.
type conn struct {
	net.Conn
	faults *faults
	// left is how many bytes may still come. Negative: any number.
	left int64
}

func (f *faults) wrap(c net.Conn) *conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	wrapped := &conn{Conn: c, faults: f, left: -1}
	if f.dropAfter > 0 {
		wrapped.left = f.dropAfter
	}
	return wrapped
}

func (f *faults) wait() {
	f.mu.Lock()
	awake := f.awake
	f.mu.Unlock()
	<-awake
}

// Read implements net.Conn. Only one goroutine of an SSH server reads.
func (c *conn) Read(p []byte) (int, error) {
	c.faults.wait()
	if c.left == 0 {
		_ = c.Close()
		return 0, errDropped
	}
	if c.left > 0 && int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.Conn.Read(p)
	c.faults.wait()
	if c.left > 0 {
		c.left -= int64(n)
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.faults.wait()
	return c.Conn.Write(p)
}
