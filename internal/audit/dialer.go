package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-refit/refit/internal/node/remote"
)

// VerbOther is a command of which nothing is known but its command line.
const VerbOther = "other"

// The outcomes of commands. A command that ran and failed has its exit status behind OutcomeExit: the agent's is 1 when it
// could not carry out what it was asked.
const (
	OutcomeOK           = "ok"
	OutcomeExit         = "exit " // status
	OutcomeUnreachable  = "unreachable"
	OutcomeLost         = "connection lost"
	OutcomeUnauthorized = "unauthorized"
	OutcomeTimedOut     = "timed out"
	OutcomeCancelled    = "cancelled"
	OutcomeError        = "error"
)

// Dialer is a remote.Dialer that records each command before it is sent, and how it ended.
type Dialer struct {
	remote.Dialer
	Log *Log
}

var (
	_ remote.Dialer  = (*Dialer)(nil)
	_ remote.Knocker = (*Dialer)(nil)
)

// Dial implements remote.Dialer. The Run of its connections fails with ErrNotRecorded, and sends nothing, when the command can't
// be recorded.
func (d *Dialer) Dial(ctx context.Context, t remote.Target) (remote.Conn, error) {
	c, err := d.Dialer.Dial(ctx, t)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, log: d.Log, address: addressOf(c, t)}, nil
}

// Knock implements remote.Knocker, for a dialer that does. No command is sent, so that nothing is recorded.
func (d *Dialer) Knock(ctx context.Context, t remote.Target) error {
	if k, ok := d.Dialer.(remote.Knocker); ok {
		return k.Knock(ctx, t)
	}
	return nil // it is to be dialled
}

// addressOf returns where a connection goes, as far as it tells.
func addressOf(c remote.Conn, t remote.Target) string {
	if a, ok := c.(interface{ Address() remote.Address }); ok {
		return a.Address().String()
	}
	all := make([]string, len(t.Addresses))
	for i, a := range t.Addresses {
		all[i] = a.String()
	}
	return strings.Join(all, ",")
}

type conn struct {
	remote.Conn
	log     *Log
	address string
}

// Run implements remote.Conn.
func (c *conn) Run(ctx context.Context, command string, stdin io.Reader, stdout io.Writer) error {
	sent, err := c.log.Append(c.entry(ctx, command))
	if err != nil {
		return fmt.Errorf("the command is not sent: %w", err)
	}
	result := c.Conn.Run(ctx, command, stdin, stdout)
	done := sent
	done.Event, done.Of, done.Outcome = EventDone, sent.Seq, outcome(ctx, result)
	done.Millis = c.log.clock.Since(sent.Time).Milliseconds()
	if _, err := c.log.Append(done); err != nil {
		// What the node has said is true nevertheless, and nothing is sent until the log can be written again. That a command
		// has no end in the log shows when it is verified.
		ctrl.LoggerFrom(ctx).Error(err, "Could not record the end of a command", "seq", sent.Seq, "outcome", done.Outcome)
	}
	return result
}

func (c *conn) entry(ctx context.Context, command string) Entry {
	e := Entry{Event: EventSent, Address: c.address, Verb: VerbOther, Request: hashOf([]byte(command))}
	known, ok := remote.CommandFrom(ctx)
	if !ok {
		return e
	}
	e.Verb, e.Request, e.Token = cmp.Or(known.Verb, VerbOther), known.SHA256, known.Token
	if m := known.Machine; m.UID != "" {
		e.Machine = &Machine{Namespace: m.Namespace, Name: m.Name, UID: m.UID}
	}
	return e
}

// outcome is the kind of an error. Its text stays out of the log: a node may have written it.
func outcome(ctx context.Context, err error) string {
	var command *remote.CommandError
	switch {
	case err == nil:
		return OutcomeOK
	case errors.As(err, &command):
		return fmt.Sprintf("%s%d", OutcomeExit, command.Status)
	case errors.Is(err, remote.ErrUnauthorized):
		return OutcomeUnauthorized
	case errors.Is(err, remote.ErrConnectionLost):
		return OutcomeLost
	case errors.Is(err, remote.ErrUnreachable):
		return OutcomeUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		return OutcomeTimedOut
	case ctx.Err() != nil, errors.Is(err, context.Canceled):
		return OutcomeCancelled
	default:
		return OutcomeError
	}
}
