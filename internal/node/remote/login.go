package remote

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/capi-refit/refit/internal/node"
)

// loginScript goes to the directory for the agent, or as far as there is a way to it, and prints a line that is nowhere in it: what is run in its place
// can't. Arguments: the directory, and the two parts of that line.
var loginScript = compact(safeText + "line=$2$3\nabsent() { echo \"$line\"; exit 0; }\nenter \"$1\"\necho \"$line\"\n")

// LogIn asks whether the login can be used: whether a shell, or the gate, runs what it is given, with sudo if the client is to use that, and nobody else can
// exchange what is in the agent's directory. It brings nothing to the node, and runs no agent. Its errors are those that the other methods would have.
func (c *Client) LogIn(ctx context.Context) error {
	ctx = Command{Verb: VerbLogin, SHA256: digest(nil)}.with(ctx)
	if c.opts.Gate {
		hello, err := c.ask(ctx, node.GateRequest{Do: node.GateHello})
		if err == nil && hello.Gate == nil {
			err = &AnswerError{Reason: "there is nothing about the gate in it"}
		}
		return err
	}
	first, second := rand.Text(), rand.Text()
	out := &limited{left: maxAnswer}
	err := c.conn.Run(ctx, c.shell(loginScript, c.opts.Dir, first, second), nil, out)
	switch {
	case err == nil && !hasLine(out.buf.Bytes(), first+second):
		return fmt.Errorf("%w: the login does not run what it is given, but something else, which has printed %q; is there a forced command?",
			ErrUnauthorized, begin(strings.TrimSpace(out.buf.String()), 200))
	case err == nil:
		return nil
	default:
		return c.explainLogin(err)
	}
}

// explainLogin says why a login can't be used.
func (c *Client) explainLogin(err error) error {
	var failed *CommandError
	switch {
	case !errors.As(err, &failed):
		return err
	case c.opts.Sudo && strings.HasPrefix(failed.Stderr, "sudo:"):
		return sudoRefuses(failed)
	case failed.Status == statusUnsafe, failed.Status == statusNotWritten:
		return c.explainRun(failed)
	case c.opts.Sudo:
		return fmt.Errorf("%w: the user can't run a shell with sudo: %w", ErrUnauthorized, failed)
	default:
		return fmt.Errorf("%w: the user can't run a shell: %w", ErrUnauthorized, failed)
	}
}

// hasLine reports whether a line is in an output: what a user's profile prints may be around it.
func hasLine(out []byte, line string) bool {
	for l := range bytes.Lines(out) {
		if string(bytes.TrimRight(l, "\r\n")) == line {
			return true
		}
	}
	return false
}

func sudoRefuses(failed *CommandError) error {
	return fmt.Errorf("%w: sudo must not ask for a password: %s", ErrUnauthorized, failed.Stderr)
}
