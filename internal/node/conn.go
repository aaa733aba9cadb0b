package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	// maxSessions at once: sshd allows 10 over one connection unless told otherwise.
	maxSessions = 8
	// maxStderr is how much of a command's stderr is kept for an error: the end of it.
	maxStderr = 2 << 10
)

type sshConn struct {
	client *client
	slots  chan struct{}
	// dead is set when the peer did not answer in time.
	dead   atomic.Bool
	closed chan struct{}
	once   sync.Once
	done   chan struct{}
}

var _ Conn = (*sshConn)(nil)

func newSSHConn(c *client, t Timeouts) *sshConn {
	conn := &sshConn{client: c, slots: make(chan struct{}, maxSessions), closed: make(chan struct{}), done: make(chan struct{})}
	go conn.keepAlive(t.Keepalive, t.Patience)
	return conn
}

// Close implements Conn.
func (c *sshConn) Close() error {
	var err error
	c.once.Do(func() {
		close(c.closed)
		err = c.client.raw.Close()
	})
	<-c.done
	return err
}

// keepAlive asks the peer now and then whether it is there. Without that, a command on a machine that lost its power
// would be waited for until TCP gives up, which it does not do while it has nothing to send.
func (c *sshConn) keepAlive(interval, patience time.Duration) {
	defer close(c.done)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-c.closed:
			return
		case <-tick.C:
		}
		limit := time.AfterFunc(patience, func() {
			c.dead.Store(true)
			_ = c.client.raw.Close()
		})
		_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
		limit.Stop()
		if err != nil {
			return
		}
	}
}

// Run implements Conn.
func (c *sshConn) Run(ctx context.Context, command string, stdin io.Reader, stdout io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("run a command: %w", context.Cause(ctx))
	}
	r := &run{stdout: stdout, fail: cancel}
	ended := make(chan error, 1)
	go func() {
		// The slot is taken until the session has really ended, on whatever our caller has done meanwhile.
		defer func() { <-c.slots }()
		ended <- r.do(c.client.Client, command, stdin)
	}()
	select {
	case err := <-ended:
		if ctx.Err() != nil {
			return fmt.Errorf("run a command: %w", context.Cause(ctx))
		}
		return c.explain(err, r)
	case <-ctx.Done():
		r.abandon()
		return fmt.Errorf("run a command: %w", context.Cause(ctx))
	}
}

// explain turns the library's errors into ours.
func (c *sshConn) explain(err error, r *run) error {
	var (
		exit    *ssh.ExitError
		refused *ssh.OpenChannelError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return &CommandError{Status: exit.ExitStatus(), Stderr: r.stderr.String()}
	case errors.As(err, &refused):
		return fmt.Errorf("the node opens no session: %s", begin(refused.Error(), 200))
	case c.dead.Load():
		return fmt.Errorf("%w: the node did not answer in time", ErrConnectionLost)
	}
	return fmt.Errorf("%w: %s", ErrConnectionLost, begin(err.Error(), 200))
}

// run is one command. It stands between the session, which ends when the peer says so, and the caller, who may leave earlier.
type run struct {
	fail   context.CancelCauseFunc
	stderr tail

	mu      sync.Mutex
	stdout  io.Writer
	session *ssh.Session
	left    bool
}

var errLeft = errors.New("nobody waits for the command any more")

func (r *run) do(c *ssh.Client, command string, stdin io.Reader) error {
	session, err := c.NewSession()
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	if !r.hold(session) {
		return errLeft
	}
	session.Stdin, session.Stdout, session.Stderr = stdin, r, &r.stderr
	if err := session.Start(command); err != nil {
		return errors.New("the session takes no command")
	}
	err = session.Wait()
	if err == io.EOF { //nolint:errorlint // A bare one: the command ended well without having read all of its stdin.
		return nil
	}
	return err
}

// hold keeps the session for abandon. It says false if that was called already.
func (r *run) hold(s *ssh.Session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session = s
	return !r.left
}

func (r *run) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = true
	if s := r.session; s != nil {
		// Not waited for: with a peer that reads nothing it would block.
		go func() { _ = s.Close() }()
	}
}

// Write hands on what the command writes, as long as somebody waits for it.
func (r *run) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left {
		return 0, errLeft
	}
	if r.stdout == nil {
		return len(p), nil
	}
	n, err := r.stdout.Write(p)
	if err != nil {
		r.fail(err)
	}
	return n, err
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p)
	if over := t.buf.Len() - maxStderr; over > 0 {
		t.buf.Next(over)
	}
	return len(p), nil
}

// String returns the end, fit for an error.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return printable(t.buf.String())
}
