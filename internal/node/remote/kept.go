package remote

import (
	"context"
	"sync"
	"time"
)

const (
	// keptIdle is how long a connection to a node is kept that nobody uses.
	keptIdle = 30 * time.Second
	// keptAge is for how long a connection to a node is used. A login that is no longer allowed is found then.
	keptAge = 10 * time.Minute
	// keptMost is how many connections are kept.
	keptMost = 500
	// keptAnswer is how long a node may take to show that a connection that was kept still works.
	keptAnswer = 5 * time.Second
)

// Kept are connections to nodes that are not closed at once by who has used them, for who looks at the same node in a moment: a drain does
// so every few seconds. The zero value is ready.
type Kept struct {
	mu   sync.Mutex
	idle map[string]*idleConn
}

// idleConn is a connection that nobody uses.
type idleConn struct {
	conn  *sshConn
	since time.Time // when it was made
	close *time.Timer
}

// dial returns a connection that was kept and still works, or a new one.
func (k *Kept) dial(ctx context.Context, t Target) (Conn, error) {
	if i := k.take(t.Kept); i != nil {
		if i.conn.answers(ctx, keptAnswer) {
			return &keptConn{sshConn: i.conn, kept: k, key: t.Kept, since: i.since}, nil
		}
		_ = i.conn.Close()
	}
	c, err := t.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &keptConn{sshConn: newSSHConn(c, t.Timeouts.withDefaults()), kept: k, key: t.Kept, since: time.Now()}, nil
}

func (k *Kept) take(key string) *idleConn {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.idle[key]
	if i == nil || !i.close.Stop() { // who closes it is on the way
		return nil
	}
	delete(k.idle, key)
	return i
}

// keep keeps a connection, and reports whether it does.
func (k *Kept) keep(c *keptConn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.idle) >= keptMost || k.idle[c.key] != nil || time.Since(c.since) > keptAge {
		return false
	}
	if k.idle == nil {
		k.idle = map[string]*idleConn{}
	}
	i := &idleConn{conn: c.sshConn, since: c.since}
	i.close = time.AfterFunc(keptIdle, func() {
		k.mu.Lock()
		delete(k.idle, c.key)
		k.mu.Unlock()
		_ = i.conn.Close()
	})
	k.idle[c.key] = i
	return true
}

// keptConn is a connection that is kept when who uses it closes it.
type keptConn struct {
	*sshConn
	kept  *Kept
	key   string
	since time.Time
	over  sync.Once
}

// Close implements Conn. With a command that still runs the connection ends: that is what Close promises.
func (c *keptConn) Close() error {
	var err error
	c.over.Do(func() {
		if len(c.slots) > 0 || c.isGone() || !c.kept.keep(c) {
			err = c.sshConn.Close()
		}
	})
	return err
}

// answers reports whether the peer is there.
func (c *sshConn) answers(ctx context.Context, limit time.Duration) bool {
	if c.isGone() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.client.raw.Close() })
	defer stop()
	_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
	return err == nil
}
