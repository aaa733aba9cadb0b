package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

// cutOffNode is a node that a restart of the kubelet with new arguments cuts off: no probe works, and nobody comes in. gone says whether it
// still is.
func cutOffNode(t *testing.T) (b *bootNode, ask func() error, gone *bool) {
	t.Helper()
	b = newBootNode(newTestNode(t))
	b.succeed(request(1, "/etc/kubelet/a", "old"))
	b.login, b.agent.cfg.ActionTimeout = nil, fewLooks
	gone = new(bool)
	ask = func() error {
		if *gone {
			return errors.New("no route to host")
		}
		return nil
	}
	b.asking(ask)
	hook := b.units.hook
	b.units.hook = func(ctx context.Context, call string) error {
		*gone = *gone || call == "restart kubelet.service" && b.content("/etc/kubelet/a") == "new"
		return hook(ctx, call)
	}
	return b, ask, gone
}

// TestANodeThatSomebodyBootsIsNotBootedOnceMore has the power go while the node waits for the last login.
func TestANodeThatSomebodyBootsIsNotBootedOnceMore(t *testing.T) {
	b, ask, _ := cutOffNode(t)
	b.agent.boundary = func(at string) error {
		if at == "begun "+stepConfirmBack {
			return errors.New("power")
		}
		return nil
	}
	_, _ = b.agent.Apply(t.Context(), request(2, "/etc/kubelet/a", "new"))
	b.start()
	b.agent.cfg.ActionTimeout = fewLooks
	b.asking(ask) // still gone: it is not the node's
	require.NoError(t, b.agent.Resume(t.Context()))
	require.False(t, b.due)
	last, err := b.agent.state.loadStatus()
	require.NoError(t, err)
	require.Equal(t, node.Failed, last.Status.State)
	require.False(t, last.Status.RolledBack, last.Status.Message)
	require.Equal(t, 2, b.boots)
}

// TestANodeThatWorksAgainIsNotBooted has systemd refuse the reboot, and the network come back meanwhile.
func TestANodeThatWorksAgainIsNotBooted(t *testing.T) {
	b, _, gone := cutOffNode(t)
	hook := b.units.hook
	b.units.hook = func(ctx context.Context, call string) error {
		if call == "reboot" {
			*gone = false
			return errors.New("Operation inhibited")
		}
		return hook(ctx, call)
	}
	status := b.fail(request(2, "/etc/kubelet/a", "new"))
	require.True(t, status.RolledBack, status.Message)
	require.NotContains(t, status.Message, "rebooted")
	require.Equal(t, 1, b.boots)
}

// TestAnInterruptedRunThatTheNodeTakesUpIsToldFromOthers: who holds the node waits for its end.
func TestAnInterruptedRunThatTheNodeTakesUpIsToldFromOthers(t *testing.T) {
	b := newBootNode(newTestNode(t))
	require.True(t, b.apply(request(2, "/etc/boot/a", "new")).Rebooting)
	b.start()
	ask := node.StatusRequest{Protocol: node.Protocol, Machine: machine}
	status, err := b.agent.Status(t.Context(), ask)
	require.NoError(t, err)
	require.True(t, status.Interrupted)
	require.True(t, status.Resumes)
	b.watch.armed = false // somebody has removed the timer
	status, err = b.agent.Status(t.Context(), ask)
	require.NoError(t, err)
	require.False(t, status.Resumes)
}

// lateClock is a clock that a test sets.
type lateClock struct {
	testClock
	late *time.Duration
}

func (c lateClock) Now() time.Time { return c.testClock.Now().Add(*c.late) }

// TestAClockThatIsSetDoesNotHoldAReboot has a clock that was ahead when the reboot was asked for, which is lost, be set right.
func TestAClockThatIsSetDoesNotHoldAReboot(t *testing.T) {
	b := newBootNode(newTestNode(t))
	years := 4 * 365 * 24 * time.Hour
	b.useClock(lateClock{late: &years})
	require.True(t, b.apply(request(1, "/etc/boot/a", "a")).Rebooting)
	b.newProcess()
	require.NoError(t, b.agent.Resume(t.Context()))
	require.Equal(t, 1, b.asked(), "it may still come")
	b.up(rebootPatience)
	require.NoError(t, b.agent.Resume(t.Context()))
	require.Equal(t, 2, b.asked())
}

// TestARebootThatAnOlderAgentHasAskedFor was noted without a time until when it is waited for.
func TestARebootThatAnOlderAgentHasAskedFor(t *testing.T) {
	b := newBootNode(newTestNode(t))
	p := progress{done: map[string]bool{}, boots: map[string]string{}, askedUntil: map[string]time.Duration{}}
	boot, err := bootOf(b.agent.root)
	require.NoError(t, err)
	p.add(node.JournalEntry{Event: eventAsked, Step: stepReboot, Boot: boot})
	p.boots[stepReboot] = boot
	for system, want := range map[string]bool{"running": false, systemStopping: true} {
		b.units.system = system
		down, err := b.agent.rebooting(t.Context(), p)
		require.NoError(t, err)
		require.Equal(t, want, down)
	}
}
