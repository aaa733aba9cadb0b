package webhook

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// connections bounds how many connections there are. When there are too many it closes one of which no request is judged: of the
// address that has the most connections, the one that has come to nothing for the longest time. So nobody who only opens connections keeps others out.
type connections struct {
	most int

	mu   sync.Mutex
	open map[*connection]bool
}

func newConnections(most int) *connections {
	return &connections{most: most, open: map[*connection]bool{}}
}

// connection is one that was accepted.
type connection struct {
	net.Conn

	of      *connections
	address string
	// judged is how many of its requests are judged now. One whose body arrives, or whose answer is not read, does not count.
	judged atomic.Int32
	// since is when something was judged last, or it was accepted, in nanoseconds.
	since atomic.Int64
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// limit returns a listener whose connections are counted.
func (s *connections) limit(on net.Listener) net.Listener { return countedListener{on, s} }

type countedListener struct {
	net.Listener

	open *connections
}

// Accept implements net.Listener. It always takes a connection, so that it is not the last one in a long queue that waits.
func (l countedListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c, ok := l.open.add(accepted); ok {
			return c, nil
		}
		_ = accepted.Close()
	}
}

// add counts a connection. It returns false if there is no room for it.
func (s *connections) add(accepted net.Conn) (*connection, bool) {
	c := &connection{Conn: accepted, of: s}
	now := time.Now().UnixNano()
	c.since.Store(now)
	if host, _, err := net.SplitHostPort(accepted.RemoteAddr().String()); err == nil {
		c.address = host
	}
	s.mu.Lock()
	var victim *connection
	full := len(s.open) >= s.most
	if full {
		if victim = s.victim(now); victim != nil {
			delete(s.open, victim)
		}
	}
	ok := !full || victim != nil
	if ok {
		s.open[c] = true
	}
	s.mu.Unlock()
	if victim != nil {
		_ = victim.Conn.Close()
	}
	return c, ok
}

// victim returns the connection to close, if there is one. A new one gets slowAfter to say what it wants.
func (s *connections) victim(now int64) *connection {
	of := map[string]int{}
	for c := range s.open {
		of[c.address]++
	}
	var victim *connection
	for c := range s.open {
		if c.judged.Load() > 0 || now-c.since.Load() < int64(slowAfter) {
			continue
		}
		if victim == nil || of[c.address] > of[victim.address] || of[c.address] == of[victim.address] && c.since.Load() < victim.since.Load() {
			victim = c
		}
	}
	return victim
}

type connectionKey struct{}

// withConnection adds the connection to the context of its requests.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// judging says that a request of the connection in ctx is judged, and returns the function that says that it has been.
func judging(ctx context.Context) (done func()) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return func() {}
	}
	c.judged.Add(1)
	return func() {
		c.since.Store(time.Now().UnixNano())
		c.judged.Add(-1)
	}
}
