package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
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
	// grace is for what ends together, but not in the same instant.
	grace = time.Second
)

type sshConn struct {
	client *client
	slots  chan struct{}
	// dead is set when the peer did not answer in time.
	dead   atomic.Bool
	closed chan struct{}
	once   sync.Once
	done   sync.WaitGroup
	// gone is closed when the connection has ended, whoever ended it.
	gone chan struct{}
}

var _ Conn = (*sshConn)(nil)

func newSSHConn(c *client, t Timeouts) *sshConn {
	conn := &sshConn{client: c, slots: make(chan struct{}, maxSessions), closed: make(chan struct{}), gone: make(chan struct{})}
	conn.done.Go(func() { conn.keepAlive(t.Keepalive, t.Patience) })
	conn.done.Go(func() {
		_ = c.Wait() // its error is that of the next read, and says less than what Run gets
		close(conn.gone)
	})
	return conn
}

// Close implements Conn.
func (c *sshConn) Close() error {
	var err error
	c.once.Do(func() {
		close(c.closed)
		err = c.client.raw.Close()
	})
	c.done.Wait()
	return err
}

// keepAlive asks the peer now and then whether it is there. Without that, a command on a machine that lost its power
// would be waited for until TCP gives up, which it does not do while it has nothing to send.
func (c *sshConn) keepAlive(interval, patience time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-c.closed:
			return
		case <-c.gone:
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
	case <-c.gone:
	case <-ctx.Done():
		return fmt.Errorf("run a command: %w", context.Cause(ctx))
	}
	if c.isGone() {
		return c.lost("it had ended before")
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
	case <-c.gone:
	}
	// All sessions end with the connection, and one that had just ended well did so. Only, the library lets one wait for
	// ever that is opened in the very moment in which the connection ends.
	select {
	case err := <-ended:
		return c.explain(err, r)
	case <-time.After(grace):
		r.abandon()
		return c.lost("it ended while the command was started")
	}
}

func (c *sshConn) isGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// lost says why a command's end is not known. It lets the connection end first, if that is what happens, so that whoever
// is told does not start the next command over it.
func (c *sshConn) lost(why string) error {
	select {
	case <-c.gone:
	case <-time.After(grace):
	}
	if c.dead.Load() {
		why = "the node did not answer in time"
	}
	return fmt.Errorf("%w: %s", ErrConnectionLost, why)
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
	case errors.Is(err, errRefused):
		return err
	case errors.As(err, &exit):
		return &CommandError{Status: exit.ExitStatus(), Stderr: r.stderr.String()}
	case errors.As(err, &refused):
		return fmt.Errorf("the node opens no session: %s", begin(refused.Error(), 200))
	}
	return c.lost(begin(peerError(err), 200))
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

var (
	errLeft    = errors.New("nobody waits for the command any more")
	errRefused = errors.New("the node opens a session, but takes no command")
)

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
		if strings.HasPrefix(err.Error(), "ssh: command ") {
			return errRefused // its own text repeats the whole command
		}
		return err
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
