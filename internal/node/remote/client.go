package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync/atomic"

	"github.com/capi-refit/refit/internal/node"
)

// DefaultAgentDir is where the agent lives on a node. It outlives a reboot.
const DefaultAgentDir = "/var/lib/refit/bin"

// maxAnswer is how much an agent may answer.
const maxAnswer = 4 << 20

// ClientOptions say how to run the agent on a node.
type ClientOptions struct {
	// Agents are what is brought to the node if it is not there.
	Agents *Agents
	// Dir is the directory for the agent, DefaultAgentDir if empty. A relative one is below the user's login directory.
	Dir string
	// Sudo runs everything with sudo, which must not ask for a password.
	Sudo bool
	// Gate has a gate on the node run the agent, instead of a shell. Dir and Sudo are the gate's own matter then.
	Gate bool
}

// Client speaks to the agent on one node. Its methods can be called at once.
//
// An error that the agent reports is an *AgentError. The agent is brought to the node when it turns out not to be there: a
// node that has it costs one round trip.
type Client struct {
	conn Conn
	opts ClientOptions
	// agent is the one for the node's architecture, once that is known.
	agent atomic.Pointer[AgentBinary]
}

// NewClient returns a Client that uses conn and does not close it.
func NewClient(conn Conn, opts ClientOptions) (*Client, error) {
	if opts.Agents == nil {
		return nil, errors.New("agent client: no agents")
	}
	if opts.Dir == "" {
		opts.Dir = DefaultAgentDir
	}
	if strings.ContainsAny(opts.Dir, "\x00\n\r") {
		return nil, fmt.Errorf("agent client: directory %q has characters that no path should have", opts.Dir)
	}
	opts.Dir = path.Clean(opts.Dir)
	if !path.IsAbs(opts.Dir) {
		// So that no name is taken for an option, or looked up in $PATH.
		opts.Dir = "./" + opts.Dir
	}
	return &Client{conn: conn, opts: opts}, nil
}

// Identity asks the agent who it is, and brings the right one if it is another.
func (c *Client) Identity(ctx context.Context) (node.Identity, error) {
	id, err := c.identity(ctx)
	if err == nil && !c.isOurs(id) {
		if err = c.push(ctx); err == nil {
			id, err = c.identity(ctx)
		}
		if err == nil && !c.isOurs(id) {
			return node.Identity{}, &AnswerError{Reason: fmt.Sprintf("it is version %q with digest %.16s, protocol %d, just after another one was brought",
				begin(id.Version, 40), printable(id.SHA256), id.Protocol)}
		}
	}
	return id, err
}

func (c *Client) identity(ctx context.Context) (node.Identity, error) {
	answer, err := c.call(ctx, "version", nil)
	if err != nil {
		return node.Identity{}, fmt.Errorf("identify the agent: %w", err)
	}
	if answer.Identity == nil {
		return node.Identity{}, fmt.Errorf("identify the agent: %w", &AnswerError{Reason: "there is no identity in it"})
	}
	return *answer.Identity, nil
}

func (c *Client) isOurs(id node.Identity) bool {
	return id.Protocol == node.Protocol && c.opts.Agents.has(id.SHA256)
}

// Plan asks what Apply would do.
func (c *Client) Plan(ctx context.Context, r node.Request) (node.Plan, error) {
	r.Protocol = node.Protocol
	answer, err := c.call(ctx, "plan", r)
	if err == nil && answer.Plan == nil {
		err = &AnswerError{Reason: "there is no plan in it"}
	}
	if err != nil {
		return node.Plan{}, fmt.Errorf("plan: %w", err)
	}
	return *answer.Plan, nil
}

// Apply starts the work, and waits for its end as long as r says. It can be repeated: what is done is not done again.
func (c *Client) Apply(ctx context.Context, r node.Request) (node.Status, error) {
	r.Protocol = node.Protocol
	return c.status(ctx, "apply", r)
}

// Status asks how the work stands.
func (c *Client) Status(ctx context.Context, r node.StatusRequest) (node.Status, error) {
	r.Protocol = node.Protocol
	return c.status(ctx, "status", r)
}

func (c *Client) status(ctx context.Context, verb string, request any) (node.Status, error) {
	answer, err := c.call(ctx, verb, request)
	if err == nil && answer.Status == nil {
		err = &AnswerError{Reason: "there is no status in it"}
	}
	if err != nil {
		return node.Status{}, fmt.Errorf("%s: %w", verb, err)
	}
	return *answer.Status, nil
}

// call runs the agent; if it is not there, or not as it was brought, brings it and runs it again.
func (c *Client) call(ctx context.Context, verb string, request any) (node.Answer, error) {
	var input []byte
	if request != nil {
		var err error
		if input, err = json.Marshal(request); err != nil {
			return node.Answer{}, fmt.Errorf("encode the request: %w", err)
		}
	}
	ctx = commandOf(verb, request, input).with(ctx)
	answer, err := c.run(ctx, verb, input)
	if !isMissing(err) {
		return answer, err
	}
	if err := c.push(ctx); err != nil {
		return node.Answer{}, err
	}
	return c.run(ctx, verb, input)
}

func (c *Client) run(ctx context.Context, verb string, input []byte) (node.Answer, error) {
	if c.opts.Gate {
		return c.runGate(ctx, verb, input)
	}
	out := &limited{left: maxAnswer}
	err := c.conn.Run(ctx, c.command(c.agent.Load(), verb), bytes.NewReader(input), out)
	answer := c.learn(out.buf.Bytes())
	var failed *CommandError
	if err != nil && !errors.As(err, &failed) {
		return node.Answer{}, err
	}
	if failed != nil && c.opts.Sudo && strings.HasPrefix(failed.Stderr, "sudo:") {
		return node.Answer{}, sudoRefuses(failed)
	}
	if failed != nil && (isMissing(failed) || len(bytes.TrimSpace(answer)) == 0) {
		return node.Answer{}, c.explainRun(failed)
	}
	return decode(answer, failed)
}

// unsafeDirectory says what to do about a directory in which others could put something else in the agent's place.
const unsafeDirectory = "each directory on the way to it must belong to root, or to whom the agent runs as, and be writable by nobody else; " +
	"put that right on the node, or choose another directory for the agent"

// explainRun says why the agent was not run, if that is why a command failed.
func (c *Client) explainRun(failed *CommandError) error {
	switch failed.Status {
	case statusUnsafe:
		return fmt.Errorf("the agent in %s was not run, since others on the node could exchange it: %s: %w", c.opts.Dir, unsafeDirectory, failed)
	case statusDamaged:
		return fmt.Errorf("the agent in %s was not run, since it is not the one that was brought: %w", c.opts.Dir, failed)
	case statusNoDigest:
		return fmt.Errorf("the agent in %s was not run, since it can't be verified; install coreutils, perl or openssl: %w", c.opts.Dir, failed)
	}
	return failed
}

// command runs the agent when it is what was brought.
func (c *Client) command(agent *AgentBinary, verb string) string {
	if agent == nil {
		return c.shell(c.opts.Agents.script(c.opts.Dir, verb))
	}
	return c.shell(runScript, c.opts.Dir+"/"+agent.Name(), agent.SHA256, verb)
}

// learn takes the line off an answer that says what machine the node is.
func (c *Client) learn(out []byte) []byte {
	line, answer, ok := bytes.Cut(out, []byte("\n"))
	machine, ours := strings.CutPrefix(string(line), runsOn)
	if !ok || !ours {
		return out
	}
	if agent, err := c.opts.Agents.For(machine); err == nil {
		c.agent.Store(&agent)
	}
	return answer
}

// shell makes script a command for any login shell.
func (c *Client) shell(script string, args ...string) string {
	words := []string{"sh", "-c", quote(script)}
	if c.opts.Sudo {
		words = append([]string{"sudo", "-n", "--"}, words...)
	}
	if len(args) > 0 {
		words = append(words, "refit")
	}
	for _, a := range args {
		words = append(words, quote(a))
	}
	return strings.Join(words, " ")
}

// runsOn begins the line in which script says what machine the node is.
const runsOn = "refit-node runs on "

// script runs the agent for the node's architecture, whatever that is: asking for it first would cost a round trip. It says
// what it is ahead of the agent's answer.
func (a *Agents) script(dir, verb string) string {
	var s strings.Builder
	s.WriteString("m=$(uname -m); case $m in ")
	for _, arch := range architectures {
		for _, b := range a.binaries {
			if b.Arch == arch.name {
				fmt.Fprintf(&s, "%s) set -- %s %s %s;; ", arch.machines, quote(dir+"/"+b.Name()), b.SHA256, verb)
			}
		}
	}
	fmt.Fprintf(&s, "*) exit 127;; esac; echo \"%s$m\"\n%s", runsOn, runScript)
	return s.String()
}

// errNoAnswer is how an agent shows whose file was emptied by a power failure: a shell runs an empty file without complaint.
var errNoAnswer = &AnswerError{Reason: "there is none"}

// isMissing reports whether the agent is not on the node, or not as it was brought there.
func isMissing(err error) bool {
	var refused *node.AgentError
	if errors.As(err, &refused) {
		return refused.Reason == node.ReasonNoAgent
	}
	var failed *CommandError
	if errors.As(err, &failed) {
		return failed.Status == 126 || failed.Status == 127 || failed.Status == statusDamaged
	}
	return errors.Is(err, errNoAnswer)
}

// decode reads the one document that an agent writes, and nothing but that.
func decode(out []byte, failed *CommandError) (node.Answer, error) {
	out = bytes.TrimSpace(out)
	if len(out) == 0 {
		return node.Answer{}, errNoAnswer
	}
	if out[0] != '{' {
		return node.Answer{}, &AnswerError{Excerpt: begin(string(out), 80),
			Reason: "something else wrote to its stdout first; a profile, ~/.bashrc or the like must print nothing when there is no terminal"}
	}
	var answer node.Answer
	decoder := json.NewDecoder(bytes.NewReader(out))
	if err := decoder.Decode(&answer); err != nil {
		return node.Answer{}, &AnswerError{Excerpt: begin(string(out), 80), Reason: "it is not JSON, or not all of it came"}
	}
	if rest, _ := io.ReadAll(decoder.Buffered()); len(bytes.TrimSpace(rest)) > 0 || decoder.More() {
		return node.Answer{}, &AnswerError{Reason: "something else was written after it"}
	}
	if answer.Error != nil {
		return node.Answer{}, answer.Error
	}
	if failed != nil {
		return node.Answer{}, failed
	}
	return answer, nil
}

// limited keeps what is written to it, up to a limit.
type limited struct {
	buf  bytes.Buffer
	left int
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, &AnswerError{Reason: fmt.Sprintf("it is longer than %d MiB", maxAnswer>>20)}
	}
	return l.buf.Write(p)
}
