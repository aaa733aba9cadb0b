package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	// jumpIdle is how long a connection to a jump host is kept that nobody uses.
	jumpIdle = 30 * time.Second
	// jumpAge is for how long a connection to a jump host is given to those who come. A login that is no longer allowed is found then.
	jumpAge = 10 * time.Minute
	// jumpAbandoned is after how many nodes that did not answer nobody comes to a connection any more. To open a channel can't be taken back: where
	// packets are dropped the jump host's sshd goes on trying for two minutes, and has so many descriptors only for one connection.
	jumpAbandoned = 20
)

// JumpHosts are connections to jump hosts that many nodes are reached over at once. A jump host sees a login every now and then, and not one for
// each look at a node: sshd turns away who comes while ten others log in (MaxStartups). The zero value is ready.
type JumpHosts struct {
	mu   sync.Mutex
	open map[string]*sharedJump
}

// sharedJump is a connection that is shared, or is being made.
type sharedJump struct {
	ready chan struct{} // closed when conn or err is there
	conn  *sshConn
	err   error
	since time.Time

	users     int
	abandoned int
	evicted   bool
}

// through connects to address over the connection to t, a jump host. One that has broken is made once more.
func (h *JumpHosts) through(ctx context.Context, t Target, address Address, limit time.Duration) (net.Conn, error) {
	for {
		j, fresh, err := h.join(ctx, t)
		if err != nil {
			return nil, err
		}
		conn, err := j.dial(ctx, address, limit)
		if err == nil {
			return h.pipe(conn, t.Shared, j), nil
		}
		abandoned, broken := j.unopened(err)
		h.leave(t.Shared, j, broken || abandoned && h.abandons(j))
		if !broken || fresh || ctx.Err() != nil {
			return nil, notForwarded(err, j.conn.client, address)
		}
	}
}

// unopened reports why a channel was not opened: it was not waited for to the end, or the connection has broken. A write finds that out before the
// connection itself has noticed. It is neither where the jump host has refused it.
func (j *sharedJump) unopened(err error) (abandoned, broken bool) {
	var refused *ssh.OpenChannelError
	switch {
	case errors.As(err, &refused):
		return false, false
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return true, j.conn.isGone()
	}
	return false, true
}

// abandons counts a node that has not answered in time, and reports whether there are too many of them.
func (h *JumpHosts) abandons(j *sharedJump) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	j.abandoned++
	return j.abandoned >= jumpAbandoned
}

// join returns the connection to a jump host, which somebody may make already, and whether it was made just now.
func (h *JumpHosts) join(ctx context.Context, t Target) (j *sharedJump, fresh bool, err error) {
	h.mu.Lock()
	if j = h.open[t.Shared]; j != nil && j.old() {
		h.evict(t.Shared, j)
		j = nil
	}
	if fresh = j == nil; fresh {
		j = &sharedJump{ready: make(chan struct{}), since: time.Now()}
		if h.open == nil {
			h.open = map[string]*sharedJump{}
		}
		h.open[t.Shared] = j
		go h.connect(context.WithoutCancel(ctx), t, j) // who comes first may leave, and others wait for it
	}
	j.users++
	h.mu.Unlock()
	select {
	case <-j.ready:
		err = j.err
	case <-ctx.Done():
		h.leave(t.Shared, j, false)
		return nil, fresh, fmt.Errorf("connect to the jump host: %w", context.Cause(ctx))
	}
	if err != nil {
		h.leave(t.Shared, j, true)
		return nil, fresh, &jumpError{err}
	}
	return j, fresh, nil
}

// old reports whether a connection is not for those who come.
func (j *sharedJump) old() bool {
	select {
	case <-j.ready:
		return j.err != nil || j.conn.isGone() || time.Since(j.since) > jumpAge
	default:
		return false
	}
}

func (h *JumpHosts) connect(ctx context.Context, t Target, j *sharedJump) {
	defer close(j.ready)
	c, err := t.connect(ctx)
	if j.err = err; err == nil {
		j.conn = newSSHConn(c, t.Timeouts.withDefaults())
	}
}

// leave gives up a connection. The last one who does has it closed, after a while unless it is evicted.
func (h *JumpHosts) leave(key string, j *sharedJump, evict bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	j.users--
	if evict {
		h.evict(key, j)
	}
	switch {
	case j.users > 0:
	case j.evicted:
		j.close()
	default:
		time.AfterFunc(jumpIdle, func() { h.closeIdle(key, j) })
	}
}

// closeIdle closes a connection that nobody has come for.
func (h *JumpHosts) closeIdle(key string, j *sharedJump) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if j.users == 0 && !j.evicted {
		h.evict(key, j)
		j.close()
	}
}

// evict has nobody come to a connection any more.
func (h *JumpHosts) evict(key string, j *sharedJump) {
	j.evicted = true
	if h.open[key] == j {
		delete(h.open, key)
	}
}

// close closes a connection when it is made. It waits for nobody.
func (j *sharedJump) close() {
	go func() {
		<-j.ready
		if j.conn != nil {
			_ = j.conn.Close()
		}
	}()
}

func (j *sharedJump) dial(ctx context.Context, address Address, limit time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return j.conn.client.DialContext(ctx, "tcp", address.String())
}

// pipedConn is a connection over a channel of a shared one. To close a channel takes the peer, which may be gone, so whoever uses the connection
// has one end of a pipe, and closes that.
type pipedConn struct {
	net.Conn
	channel net.Conn
}

// RemoteAddr implements net.Conn.
func (c *pipedConn) RemoteAddr() net.Addr { return c.channel.RemoteAddr() }

// Close implements net.Conn. The channel is closed, too, by who does not wait for that: what is being written to it would not see that the near
// end is.
func (c *pipedConn) Close() error {
	err := c.Conn.Close()
	go func() { _ = c.channel.Close() }()
	return err
}

func (h *JumpHosts) pipe(channel net.Conn, key string, j *sharedJump) net.Conn {
	near, far := net.Pipe()
	go func() {
		_, _ = io.Copy(channel, far) // until the near end is closed, or the channel is
		_ = far.Close()
		_ = channel.Close()
		h.leave(key, j, false)
	}()
	go func() {
		_, _ = io.Copy(far, channel)
		_ = far.Close()
	}()
	return &pipedConn{Conn: near, channel: channel}
}
