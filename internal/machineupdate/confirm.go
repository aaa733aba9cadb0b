package machineupdate

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodeaccess"
)

// How long to wait after a login that a node waits for has failed. sshd turns away for a while who fails often.
const (
	confirmRetry   = 5 * time.Second
	confirmSlowest = 30 * time.Second
)

// login is the login that a node waits for after its work has touched the way in.
type login struct {
	// access is where it goes, and how.
	access *nodeaccess.Access
	// pause comes before the next one, when one has failed.
	pause time.Duration
	err   error
}

// confirm logs in to a node that waits for it, over a connection of its own: what the server already has open would stay so if nobody
// else came in any more. That a login fails is no error: it is tried again until the node has put everything back.
func (u *update) confirm(ctx context.Context, request *node.Request, status node.Status) error {
	if !status.AwaitsLogin || u.login.access == nil {
		return nil
	}
	if err := u.login.wait(ctx); err != nil {
		return err
	}
	err := u.logIn(ctx, u.login.access, node.StatusRequest{
		Protocol: node.Protocol, Machine: request.Machine, Digest: status.Digest, Token: status.Token, Confirm: true,
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var over *node.AgentError
	if errors.As(err, &over) && over.Reason == node.ReasonNotAwaited {
		err = nil // how the run stands is asked next
	}
	if u.login.err = err; err == nil {
		u.login.pause = 0
		return nil
	}
	u.login.pause = min(2*cmp.Or(u.login.pause, cmp.Or(u.ConfirmRetry, confirmRetry)/2), confirmSlowest)
	return nil
}

// logIn makes a new connection, and asks.
func (u *update) logIn(ctx context.Context, a *nodeaccess.Access, ask node.StatusRequest) error {
	return u.overConnection(ctx, a, func(client *remote.Client) error {
		_, err := client.Status(ctx, ask)
		return err
	})
}

// overConnection asks the agent over a connection that is for nothing else.
func (u *update) overConnection(ctx context.Context, a *nodeaccess.Access, ask func(*remote.Client) error) error {
	conn, err := u.Dialer.Dial(ctx, a.Target)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it was only asked
	client, err := a.Client(conn, u.Agents)
	if err != nil {
		return err
	}
	return ask(client)
}

func (l *login) wait(ctx context.Context) error {
	if l.pause == 0 {
		return nil
	}
	t := time.NewTimer(l.pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaited returns what the node waits for, and why it has not come.
func (l *login) awaited(status node.Status) string {
	if l.err == nil {
		return status.Message
	}
	return status.Message + "; the last login failed: " + l.err.Error()
}
