package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/capi-refit/refit/internal/node"
)

// LogIn asks whether the login can be used: whether a shell, or the gate, runs what an update runs first, with sudo if the client is to use that. It
// brings nothing to the node, and runs no agent. Its errors are those that the other methods would have.
func (c *Client) LogIn(ctx context.Context) error {
	ctx = Command{Verb: VerbLogin, SHA256: digest(nil)}.with(ctx)
	if c.opts.Gate {
		_, err := c.ask(ctx, node.GateRequest{Do: node.GateHello}, nil)
		return err
	}
	err := c.conn.Run(ctx, c.shell("true"), nil, nil)
	var failed *CommandError
	switch {
	case !errors.As(err, &failed):
		return err
	case c.opts.Sudo && strings.HasPrefix(failed.Stderr, "sudo:"):
		return fmt.Errorf("%w: sudo must not ask for a password: %s", ErrUnauthorized, failed.Stderr)
	case c.opts.Sudo:
		return fmt.Errorf("%w: the user can't run a shell with sudo: %w", ErrUnauthorized, failed)
	default:
		return fmt.Errorf("%w: the user can't run a shell: %w", ErrUnauthorized, failed)
	}
}
