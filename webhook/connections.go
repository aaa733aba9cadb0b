package webhook

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// connections bounds how many connections there are. When there are too many it closes one that has no request under way: of the
// address that has the most of them, the oldest one. So nobody who only opens connections keeps others out.
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

	of       *connections
	address  string
	accepted time.Time
	requests atomic.Int32 // under way
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
	c := &connection{Conn: accepted, of: s, accepted: time.Now()}
	if host, _, err := net.SplitHostPort(accepted.RemoteAddr().String()); err == nil {
		c.address = host
	}
	s.mu.Lock()
	var victim *connection
	full := len(s.open) >= s.most
	if full {
		if victim = s.victim(c.accepted); victim != nil {
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
func (s *connections) victim(now time.Time) *connection {
	of := map[string]int{}
	for c := range s.open {
		of[c.address]++
	}
	var victim *connection
	for c := range s.open {
		if c.requests.Load() > 0 || now.Sub(c.accepted) < slowAfter {
			continue
		}
		if victim == nil || of[c.address] > of[victim.address] || of[c.address] == of[victim.address] && c.accepted.Before(victim.accepted) {
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

// countRequests counts the requests of each connection.
func countRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			c.requests.Add(1)
			defer c.requests.Add(-1)
		}
		next.ServeHTTP(w, r)
	})
}
