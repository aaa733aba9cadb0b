package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/test/lab"
)

// nodes are the fleet's, as far as anybody is to log in there: stand-ins in this process, each at an address of its own on loopback, and a port that
// all have. Dark ones take a connection, and never say anything.
type nodes struct {
	key  []byte // lets refit in
	port int

	mu      sync.Mutex
	well    []*nodetest.Node
	dark    []net.Listener
	holding sync.WaitGroup

	// now is how many connections dark nodes have, and dials how many they had.
	now, dials atomic.Int64
}

func newNodes() (*nodes, error) {
	n := &nodes{}
	ports, err := lab.FreePorts(1)
	if err != nil {
		return nil, err
	}
	n.port = ports[0]
	n.key, err = nodetest.NewKey()
	return n, err
}

// perNode is how many files a node takes at most: where it listens, and connections that refit keeps or that have not ended yet.
const perNode = 4

// mayOpen returns an error if so many nodes would open more files than this process may.
func mayOpen(nodes int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("ask how many files may be open: %w", err)
	}
	if want := uint64(perNode*nodes + 1000); limit.Cur < want {
		return fmt.Errorf("%d nodes may open %d files, and this process %d: raise that with ulimit -n, or measure a smaller fleet", nodes, want, limit.Cur)
	}
	return nil
}

// address is that of the node of a number: 127.77.0.1 and so on.
func address(i int) string { return fmt.Sprintf("127.77.%d.%d", i/250, i%250+1) }

// start starts the node of a number.
func (n *nodes) start(i int, dark bool) error {
	at := net.JoinHostPort(address(i), strconv.Itoa(n.port))
	if !dark {
		well, err := nodetest.Start(nodetest.Options{Name: address(i), UserKey: n.key, Listen: at, Run: (&fakeAgent{}).run})
		if err != nil {
			return err
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.well = append(n.well, well)
		return nil
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return fmt.Errorf("start a dark node: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dark = append(n.dark, l)
	n.holding.Go(func() { n.hold(l) })
	return nil
}

// hold takes connections, and keeps each until the other side gives up.
func (n *nodes) hold(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		n.dials.Add(1)
		n.now.Add(1)
		n.holding.Go(func() {
			defer n.now.Add(-1)
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		})
	}
}

// stop ends all nodes. Refit has ended before: it is who ends its connections with dark ones.
func (n *nodes) stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, l := range n.dark {
		errs = append(errs, l.Close())
	}
	for _, well := range n.well {
		errs = append(errs, well.Close())
	}
	n.holding.Wait()
	return errors.Join(errs...)
}
