package machineupdate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
)

// loginDialer is a fake of a node that tells connections apart.
type loginDialer struct {
	*fakeNode
	dials int
	// refuse reports whether a connection is refused.
	refuse func(dial int) error
	// asked are the commands by the number of the connection that they came over.
	asked []string
	// confirmed are the requests that confirm a login.
	confirmed []node.StatusRequest
	// late has the node not wait for a login any more.
	late bool
}

type loginConn struct {
	*loginDialer
	number int
}

func (d *loginDialer) Dial(context.Context, remote.Target) (remote.Conn, error) {
	d.dials++
	if d.refuse != nil {
		if err := d.refuse(d.dials); err != nil {
			return nil, err
		}
	}
	return loginConn{d, d.dials}, nil
}

func (c loginConn) Run(ctx context.Context, command string, stdin io.Reader, stdout io.Writer) error {
	data, err := io.ReadAll(stdin)
	if err != nil {
		return err
	}
	var ask node.StatusRequest
	verb := verbOf(ctx)
	if verb == "status" {
		if err := json.Unmarshal(data, &ask); err != nil {
			return err
		}
	}
	if ask.Confirm {
		verb = "confirm"
		c.confirmed = append(c.confirmed, ask)
	}
	c.asked = append(c.asked, fmt.Sprintf("%d %s", c.number, verb))
	if ask.Confirm && c.late {
		return json.NewEncoder(stdout).Encode(node.Answer{Error: &node.AgentError{Reason: node.ReasonNotAwaited, Message: "the login comes too late"}})
	}
	return c.fakeNode.Run(ctx, command, bytes.NewReader(data), stdout)
}

var (
	awaitsLogin = node.Status{State: node.Running, Token: 1234, AwaitsLogin: true, Step: "confirm the way in", Message: "the node awaits a login"}
	goesOn      = node.Status{State: node.Running, Token: 1234}
	putBack     = node.Status{State: node.Failed, Token: 1234, RolledBack: true, Message: "confirm the way in failed: refit could not log in to the node any more; the files were put back"}
)

func awaitingWorld(t *testing.T, applied ...node.Status) (*world, *loginDialer) {
	w := newWorld(t)
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, applied
	d := &loginDialer{fakeNode: w.node}
	w.reconciler.Dialer, w.reconciler.ConfirmRetry = d, time.Nanosecond
	require.False(t, w.ask())
	return w, d
}

func TestALoginIsConfirmedOverAConnectionOfItsOwn(t *testing.T) {
	w, d := awaitingWorld(t, awaitsLogin, goesOn, succeeded)
	w.reconcile()
	mu := w.update()
	require.Equal(t, refitv1.PhaseSucceeded, mu.Status.Phase, mu.Status.Message)
	require.Equal(t, []string{"1 plan", "1 apply", "2 confirm", "1 status", "1 plan"}, d.asked)
	require.Equal(t, 2, d.dials)
	require.Equal(t, []node.StatusRequest{{
		Protocol: node.Protocol, Machine: d.confirmed[0].Machine, Digest: mu.Spec.Digest, Token: 1234, Confirm: true,
	}}, d.confirmed, "with the token of the run, which an earlier leader may have begun")
}

func TestALoginThatFailsIsTriedAgainUntilTheNodeHasPutEverythingBack(t *testing.T) {
	refused := fmt.Errorf("%w: the host refuses user \"refit\"", remote.ErrUnauthorized)
	t.Run("it comes in the end", func(t *testing.T) {
		w, d := awaitingWorld(t, awaitsLogin, awaitsLogin, awaitsLogin, goesOn, succeeded)
		d.refuse = func(dial int) error {
			if dial == 2 || dial == 3 {
				return refused
			}
			return nil
		}
		var seen string
		w.node.before = func(string) {
			if s := w.update().Status; s.Step == awaitsLogin.Step && d.dials == 4 {
				seen = s.Message
			}
		}
		w.reconcile()
		require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
		require.Equal(t, []string{"1 plan", "1 apply", "1 status", "1 status", "4 confirm", "1 status", "1 plan"}, d.asked)
		require.Equal(t, "the node awaits a login; the last login failed: "+refused.Error(), seen)
	})
	t.Run("it never does", func(t *testing.T) {
		w, d := awaitingWorld(t, awaitsLogin, awaitsLogin, putBack)
		d.refuse = func(dial int) error {
			if dial > 1 {
				return refused
			}
			return nil
		}
		w.reconcile()
		mu := w.update()
		require.Equal(t, refitv1.PhaseFailed, mu.Status.Phase)
		require.Contains(t, mu.Status.Message, "the node reports: "+putBack.Message)
		require.Empty(t, d.confirmed)
	})
	t.Run("it comes too late", func(t *testing.T) {
		w, d := awaitingWorld(t, awaitsLogin, putBack)
		d.late = true
		w.reconcile()
		require.Equal(t, refitv1.PhaseFailed, w.update().Status.Phase)
		require.Len(t, d.confirmed, 1)
	})
	t.Run("and the connection that was open is cut, too", func(t *testing.T) {
		w, d := awaitingWorld(t, awaitsLogin, putBack)
		d.refuse = func(dial int) error {
			if dial > 1 && dial < 4 {
				return errRefused
			}
			return nil
		}
		w.node.before = func(verb string) {
			if verb == "status" && d.dials == 2 {
				d.err = &node.AgentError{Reason: node.ReasonInternal, Message: "cut"}
			}
		}
		w.reconcile()
		require.Equal(t, refitv1.PhaseWaiting, w.update().Status.Phase)
		w.node.before, d.err = nil, nil
		w.clock.Step(time.Minute)
		w.reconcile()
		require.Equal(t, refitv1.ReasonUnreachable, w.update().Status.Reason)
		w.clock.Step(time.Minute)
		w.reconcile()
		mu := w.update()
		require.Equal(t, refitv1.PhaseFailed, mu.Status.Phase, mu.Status.Message)
		require.Contains(t, mu.Status.Message, "the node reports: "+putBack.Message)
	})
}

func TestAWorkThatTouchesNoWayInTakesOneConnection(t *testing.T) {
	w, d := awaitingWorld(t, goesOn, succeeded)
	w.reconcile()
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
	require.Equal(t, 1, d.dials)
}
