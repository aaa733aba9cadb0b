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
	"golang.org/x/crypto/ssh"
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
		HostSigners:      signers,
		Handler:          n.session,
		PublicKeyHandler: n.letIn,
		LocalPortForwardingCallback: func(ctx gssh.Context, _ string, _ uint32) bool {
			forbidden, _ := ctx.Value(noForwardingKey{}).(bool)
			return n.opts.Forward && !forbidden
		},
		ChannelHandlers: map[string]gssh.ChannelHandler{
			"session": gssh.DefaultSessionHandler, "direct-tcpip": gssh.DirectTCPIPHandler,
		},
	}
	server.HandleConn(c)
}

// What a login is bound to, in the context of its connection.
type (
	forcedKey       struct{}
	noForwardingKey struct{}
)

// letIn reports whether a user may log in by a key or a certificate.
func (n *Node) letIn(ctx gssh.Context, key gssh.PublicKey) bool {
	if ctx.User() != n.opts.User {
		return false
	}
	cert, ok := key.(*ssh.Certificate)
	if !ok {
		ctx.SetValue(forcedKey{}, n.opts.ForceCommand)
		return gssh.KeysEqual(key, n.userKey)
	}
	checker := ssh.CertChecker{
		SupportedCriticalOptions: []string{"force-command"},
		IsUserAuthority: func(authority ssh.PublicKey) bool {
			trusted, _, _, _, err := ssh.ParseAuthorizedKey([]byte(n.opts.UserCA))
			return err == nil && gssh.KeysEqual(authority, trusted)
		},
	}
	if cert.CertType != ssh.UserCert || !checker.IsUserAuthority(cert.SignatureKey) || checker.CheckCert(ctx.User(), cert) != nil {
		return false
	}
	_, forwards := cert.Extensions["permit-port-forwarding"]
	ctx.SetValue(forcedKey{}, cert.CriticalOptions["force-command"])
	ctx.SetValue(noForwardingKey{}, !forwards)
	return true
}

// session runs one command as sshd does: a client that leaves ends the command's stdin and breaks its stdout, no more.
func (n *Node) session(s gssh.Session) {
	asked := s.RawCommand()
	n.mu.Lock()
	n.commands = append(n.commands, asked)
	n.mu.Unlock()
	if n.opts.Noise != "" {
		_, _ = io.WriteString(s, n.opts.Noise)
	}
	if n.opts.Run != nil {
		_ = s.Exit(n.opts.Run(asked, s, s))
		return
	}
	command := asked
	if forced, _ := s.Context().Value(forcedKey{}).(string); forced != "" {
		command = forced
	}
	cmd := n.Command(context.Background(), "sh", "-c", command) // it outlives its connection; Close ends it
	cmd.Env = append(cmd.Env, "SSH_ORIGINAL_COMMAND="+asked)
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
