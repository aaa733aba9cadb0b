package nodetest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	gssh "github.com/gliderlabs/ssh"
)

func (n *Node) serve() {
	for {
		raw, err := n.listener.Accept()
		if err != nil {
			return
		}
		if c := n.admit(raw); c != nil {
			n.served.Go(func() { n.handle(c) })
		}
	}
}

// admit counts a connection, and returns nil if it is refused.
func (n *Node) admit(raw net.Conn) *conn {
	c := n.faults.wrap(raw)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialled++
	n.faults.mu.Lock()
	refuse := n.faults.refuse || n.closed
	n.faults.mu.Unlock()
	if refuse {
		if tcp, ok := raw.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = raw.Close()
		return nil
	}
	n.conns[c] = struct{}{}
	return c
}

// handle has a server of its own for each connection: keys and faults may change between two.
func (n *Node) handle(c *conn) {
	defer func() {
		_ = c.Close()
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.conns, c)
	}()
	signers, err := n.signers()
	if err != nil {
		return
	}
	server := &gssh.Server{
		HostSigners: signers,
		Handler:     n.session,
		PublicKeyHandler: func(ctx gssh.Context, key gssh.PublicKey) bool {
			return ctx.User() == n.opts.User && gssh.KeysEqual(key, n.userKey)
		},
		LocalPortForwardingCallback: func(gssh.Context, string, uint32) bool { return n.opts.Forward },
		ChannelHandlers: map[string]gssh.ChannelHandler{
			"session": gssh.DefaultSessionHandler, "direct-tcpip": gssh.DirectTCPIPHandler,
		},
	}
	server.HandleConn(c)
}

// session runs one command as sshd does: a client that leaves ends the command's stdin and breaks its stdout, no more.
func (n *Node) session(s gssh.Session) {
	n.mu.Lock()
	n.commands = append(n.commands, s.RawCommand())
	n.mu.Unlock()
	if n.opts.Noise != "" {
		_, _ = io.WriteString(s, n.opts.Noise)
	}
	cmd := n.Command(context.Background(), "sh", "-c", s.RawCommand()) // it outlives its connection; Close ends it
	cmd.Stdout, cmd.Stderr = s, s.Stderr()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		_ = s.Exit(255)
		return
	}
	if err := n.work.start(cmd); err != nil {
		_, _ = io.WriteString(s.Stderr(), err.Error())
		_ = s.Exit(255)
		return
	}
	go func() {
		_, _ = io.Copy(stdin, s)
		_ = stdin.Close()
	}()
	err = n.work.wait(cmd)
	_ = s.Exit(exitStatus(err))
}

func exitStatus(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		return 255
	case exit.ExitCode() < 0:
		return 137 // killed
	}
	return exit.ExitCode()
}

// Command prepares a command that runs as on the node: in its root, with REFIT_ROOT and the fake systemctl first in $PATH.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = n.opts.Root
	// For a child that has left the process group and keeps stdout open.
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = []string{
		"PATH=" + filepath.Join(n.opts.Root, "usr/bin") + ":" + os.Getenv("PATH"),
		"REFIT_ROOT=" + n.opts.Root, "HOME=" + n.opts.Root, "USER=" + n.opts.User, "LANG=C",
	}
	return cmd
}

// processes are the commands under way, each with its children in a process group.
type processes struct {
	mu      sync.Mutex
	groups  map[int]struct{}
	over    bool
	running sync.WaitGroup
}

var errClosed = errors.New("the stand-in is closed")

func (p *processes) start(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return errClosed
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	if p.groups == nil {
		p.groups = map[int]struct{}{}
	}
	p.groups[cmd.Process.Pid] = struct{}{}
	p.running.Add(1)
	return nil
}

func (p *processes) wait(cmd *exec.Cmd) error {
	defer p.running.Done()
	err := cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.groups, cmd.Process.Pid)
	return err
}

// kill ends all commands and lets none start any more.
func (p *processes) kill() {
	p.mu.Lock()
	p.over = true
	for pid := range p.groups {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
	p.mu.Unlock()
	p.running.Wait()
}
