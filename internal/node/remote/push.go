package remote

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// push brings the agent for the node's architecture to the node.
func (c *Client) push(ctx context.Context) error {
	if c.opts.Gate {
		return c.pushGate(ctx)
	}
	out := &limited{left: 64 << 10}
	if err := c.conn.Run(instead(ctx, VerbArchitecture, digest(nil)), "uname -m", nil, out); err != nil {
		return fmt.Errorf("ask for the node's architecture: %w", err)
	}
	// A talkative profile comes first.
	lines := strings.Split(strings.TrimSpace(out.buf.String()), "\n")
	agent, err := c.opts.Agents.For(strings.TrimSpace(lines[len(lines)-1]))
	if err != nil {
		return &PushError{Dir: c.opts.Dir, Reason: "no agent fits", Err: err}
	}
	command := c.shell(pushScript, c.opts.Dir, agent.Name(), agent.SHA256, strconv.FormatInt(agent.size, 10))
	content := agent.content()
	err = c.conn.Run(instead(ctx, VerbPush, agent.SHA256), command, content, nil)
	var failed *CommandError
	switch changed := content.changed(); {
	case err == nil:
		return nil
	case changed != nil:
		return &PushError{Dir: c.opts.Dir, Reason: "the agent's file has changed", Err: changed}
	case errors.As(err, &failed):
		return c.explainPush(failed)
	}
	return fmt.Errorf("bring the agent to the node: %w", err)
}

// pushFailures are tried in order: exit status, 0 for any, and what stderr says.
var pushFailures = []struct {
	status       int
	says         string
	reason       string
	unauthorized bool
}{
	{says: "No space left", reason: "no space is left there; make room or choose another directory"},
	{says: "Disk quota exceeded", reason: "the user's quota is used up; make room or choose another directory"},
	{says: "Read-only file system", reason: "the file system is read-only; choose another directory for the agent"},
	{status: statusNotWritten, says: "Permission denied", reason: "the user may not write there; use sudo or choose another directory", unauthorized: true},
	{status: statusUnsafe, reason: unsafeDirectory},
	{status: statusNoDigest, reason: "what came can't be verified there; install coreutils, perl or openssl"},
	{status: statusTruncated, reason: "the transfer ended early; trying again may help"},
	{status: statusDamaged, reason: "what came is not what was sent; trying again may help"},
	{status: statusNotRunning, says: "Permission denied", reason: "programs can't be run from there; is it mounted noexec? Choose another directory for the agent"},
	{status: statusNotRunning, reason: "it does not run on this node"},
	{reason: "the node refuses it"},
}

// explainPush says what can be done about it.
func (c *Client) explainPush(failed *CommandError) error {
	if c.opts.Sudo && strings.HasPrefix(failed.Stderr, "sudo:") {
		return &PushError{Dir: c.opts.Dir, Reason: "sudo must not ask for a password", Err: fmt.Errorf("%w: %w", ErrUnauthorized, failed)}
	}
	why := &PushError{Dir: c.opts.Dir, Err: failed}
	for _, f := range pushFailures {
		if (f.status == 0 || f.status == failed.Status) && strings.Contains(failed.Stderr, f.says) {
			why.Reason = f.reason
			if f.unauthorized {
				why.Err = fmt.Errorf("%w: %w", ErrUnauthorized, failed)
			}
			break
		}
	}
	return why
}
