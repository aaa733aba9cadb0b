package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/capi-refit/refit/internal/node"
)

// reachScript goes to the directory for the agent. Argument: the directory. Where it is not there yet, what is there of the way to it is checked.
var reachScript = compact(safeText + "absent() { exit 0; }\nenter \"$1\"\n")

// Reach looks over a connection whether the agent could be brought to a node and run there, as o says: that a shell, or the gate, runs what it is
// given, with sudo where that is to be used, and that nobody else can exchange what is in the agent's directory. It brings and changes nothing, and
// needs no Agents.
func Reach(ctx context.Context, conn Conn, o ClientOptions) error {
	if o.Agents == nil {
		o.Agents = &Agents{}
	}
	c, err := NewClient(conn, o)
	if err != nil {
		return err
	}
	ctx = Command{Verb: VerbArchitecture, SHA256: digest(nil)}.with(ctx)
	if c.opts.Gate {
		hello, err := c.ask(ctx, node.GateRequest{Do: node.GateHello}, nil)
		if err == nil && hello.Gate == nil {
			err = &AnswerError{Reason: "there is nothing about the gate in it"}
		}
		return err
	}
	err = conn.Run(ctx, c.shell(reachScript, c.opts.Dir), strings.NewReader(""), io.Discard)
	var failed *CommandError
	switch {
	case !errors.As(err, &failed):
		return err
	case c.opts.Sudo && strings.HasPrefix(failed.Stderr, "sudo:"):
		return sudoRefuses(failed)
	default:
		return c.explainRun(failed)
	}
}

func sudoRefuses(failed *CommandError) error {
	return fmt.Errorf("%w: sudo must not ask for a password: %s", ErrUnauthorized, failed.Stderr)
}
