package gate

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/capi-refit/refit/internal/node"
)

const (
	// Command is the argument of refit-node that is the gate.
	Command = "gate"

	stateDir   = "/var/lib/refit/gate"
	trustDir   = "/etc/refit"
	trustName  = "agent-signers"
	searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

	// maxHeader bounds the line that a request is.
	maxHeader = 8 << 10
	// patience is how long the gate waits for a request, and for each part of an agent. What the agent itself does has no such bound.
	patience = 30 * time.Second
	// longest is how long an agent may take to come, and others may have to wait for that.
	longest = 10 * time.Minute
)

var (
	errNotThere = errors.New("the agent has to be brought")
	digestForm  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

type signers = []ed25519.PublicKey

// Config is what a gate needs to know about where it stands.
type Config struct {
	// Architecture is GOARCH.
	Architecture string
	// Log gets a line for each request that is carried out or refused.
	Log func(line string)
	// Exec becomes the program that f is open on, and returns only if it can't. Nil: the kernel does.
	Exec func(f *os.File, args, env []string) error
	// Patience is how long to wait for a caller who says nothing. 0: half a minute.
	Patience time.Duration
}

// gate is one request.
type gate struct {
	Config
	root  string
	stdin io.Reader
}

// Main carries out one request and returns the exit status. What it writes to stdout is a node.Answer; an agent that it becomes writes its own.
func Main(ctx context.Context, cfg Config, args []string, stdin io.Reader, stdout io.Writer) int {
	if cfg.Exec == nil {
		cfg.Exec = become
	}
	g := gate{Config: cfg}
	answer, err := g.serve(ctx, args, stdin)
	if err != nil {
		reason := node.ReasonRefused
		if errors.Is(err, errNotThere) {
			reason = node.ReasonNoAgent
		}
		g.Log("refused: " + err.Error())
		answer = node.Answer{Error: &node.AgentError{Reason: reason, Message: "the node's gate: " + err.Error()}}
	}
	if json.NewEncoder(stdout).Encode(answer) != nil || err != nil {
		return 1
	}
	return 0
}

// serve carries out what is asked. Its arguments are the node's own, not the caller's.
func (g *gate) serve(ctx context.Context, args []string, stdin io.Reader) (node.Answer, error) {
	flags := flag.NewFlagSet("refit-node", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&g.root, "root", "/", "the directory that everything on the node is under")
	if err := flags.Parse(args); err != nil || flags.NArg() != 1 || flags.Arg(0) != Command || !filepath.IsAbs(g.root) {
		return node.Answer{}, errors.New("usage: refit-node [--root DIR] gate")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("it took longer than %s", longest))
	defer cancel()
	g.stdin = &patient{ctx: ctx, from: stdin, patience: cmp.Or(g.Patience, patience)}
	request, err := readRequest(g.stdin)
	if err != nil {
		return node.Answer{}, err
	}
	path := filepath.Join(g.root, stateDir)
	dir, err := openDir(path, true)
	if err != nil {
		return node.Answer{}, fmt.Errorf("its directory can't be used: %w", err)
	}
	defer dir.Close() //nolint:errcheck // it was read and written by its files
	s := store{path: path, dir: dir, signers: g.signers, arch: g.Architecture}
	switch request.Do {
	case node.GateHello:
		return g.hello(s)
	case node.GatePush:
		return g.push(ctx, s, request)
	case node.GateRun:
		return node.Answer{}, g.run(s, request)
	}
	return node.Answer{}, fmt.Errorf("it does not know %.40q; it knows %s, %s and %s", request.Do, node.GateHello, node.GatePush, node.GateRun)
}

// readRequest reads a line, and nothing of what follows: that is the agent's.
func readRequest(from io.Reader) (node.GateRequest, error) {
	var r node.GateRequest
	line := make([]byte, 0, 256)
	for one := make([]byte, 1); ; {
		if _, err := io.ReadFull(from, one); err != nil {
			return r, fmt.Errorf("no request came: %w", err)
		}
		if one[0] == '\n' {
			break
		}
		if line = append(line, one[0]); len(line) > maxHeader {
			return r, fmt.Errorf("the request is longer than %d bytes", maxHeader)
		}
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, errors.New("the request is not in JSON; only refit can come in here")
	}
	if r.Gate != node.GateProtocol {
		return r, fmt.Errorf("it speaks version %d of the protocol, and was asked in version %d: install another refit-node on the node", node.GateProtocol, r.Gate)
	}
	return r, nil
}

// signers are whom the node trusts to sign agents.
func (g *gate) signers() (signers, error) {
	file := filepath.Join(g.root, trustDir, trustName)
	data, err := read(file, maxSmall)
	if err != nil {
		return nil, fmt.Errorf("the keys that sign agents can't be read: %w", err)
	}
	keys, err := node.ParseAgentSigners(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return keys, nil
}

func (g *gate) hello(s store) (node.Answer, error) {
	index, err := s.index()
	if err != nil {
		return node.Answer{}, err
	}
	digests, err := s.digests()
	return node.Answer{Gate: &node.GateInfo{
		Protocol: node.GateProtocol, OS: "linux", Architecture: g.Architecture, RollbackIndex: index, Agents: digests,
	}}, err
}

func (g *gate) push(ctx context.Context, s store, r node.GateRequest) (node.Answer, error) {
	if r.Signature == nil {
		return node.Answer{}, errors.New("an agent without a signature is not taken")
	}
	if err := s.take(ctx, *r.Signature, r.Size, g.stdin); err != nil {
		return node.Answer{}, err
	}
	g.Log(fmt.Sprintf("took the agent %s, version %s, rollback index %d", r.Signature.SHA256, r.Signature.Version, r.Signature.RollbackIndex))
	return g.hello(s)
}

// run becomes the agent. What is executed is the file that was verified, whatever its name is by then.
func (g *gate) run(s store, r node.GateRequest) error {
	if !slices.Contains(node.GateVerbs, r.Verb) {
		return fmt.Errorf("the agent can't be told to %.40q here; it can be %v", r.Verb, node.GateVerbs)
	}
	digest := r.Agents[g.Architecture]
	if !digestForm.MatchString(digest) {
		return fmt.Errorf("no agent for %s was asked for", g.Architecture)
	}
	f, err := s.find(digest)
	if err != nil {
		return err
	}
	defer f.Close()
	args := []string{"refit-node", "--root", g.root, r.Verb}
	g.Log(fmt.Sprintf("runs %s of the agent %s", r.Verb, digest))
	if err := g.Exec(f, args, []string{searchPath, "HOME=/root", "LANG=C.UTF-8"}); err != nil {
		return fmt.Errorf("the agent can't be run; is %s on a file system that is mounted noexec? %w", stateDir, err)
	}
	return nil
}

// become is execve by a file descriptor. It is closed by that, since nothing needs it then.
func become(f *os.File, args, env []string) error {
	return syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), args, env)
}

// patient reads as long as something comes.
type patient struct {
	ctx      context.Context
	from     io.Reader
	patience time.Duration
}

// Read implements io.Reader.
func (p *patient) Read(b []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	buf := make([]byte, len(b)) // who waits no longer must not see its own change
	done := make(chan result, 1)
	go func() {
		n, err := p.from.Read(buf)
		done <- result{n, err}
	}()
	ctx, cancel := context.WithTimeoutCause(p.ctx, p.patience, fmt.Errorf("nothing came for %s", p.patience))
	defer cancel()
	select {
	case r := <-done:
		copy(b, buf[:r.n])
		return r.n, r.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
