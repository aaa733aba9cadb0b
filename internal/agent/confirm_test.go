package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// upClock is a node's clock: while a run waits for a login the node has been up longer, and one may come. Else it is as a test has it.
type upClock struct {
	Clock
	n *testNode
}

func (n *testNode) useClock(c Clock) { n.agent.cfg.Clock = upClock{c, n} }

func (c upClock) Wait(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n := c.n
	if last, err := n.agent.state.loadStatus(); err == nil && last != nil && n.agent.awaitsLogin(*last) {
		if n.login != nil {
			n.up(d)
			n.login()
		} else {
			n.up(time.Minute)
		}
		return ctx.Err()
	}
	return c.Clock.Wait(ctx, d)
}

// up lets time pass.
func (n *testNode) up(d time.Duration) {
	_, up, err := uptimeOf(n.agent.root)
	require.NoError(n.t, err)
	n.put("/proc/uptime", fmt.Sprintf("%.2f 1.00\n", (up+d).Seconds()))
}

// logIn confirms as the server does.
func (n *testNode) logIn() {
	last, err := n.agent.state.loadStatus()
	require.NoError(n.t, err)
	status, err := n.newAgent().Status(context.Background(), node.StatusRequest{
		Protocol: node.Protocol, Machine: machine, Digest: last.Status.Digest, Token: last.Status.Token, Confirm: true,
	})
	require.NoError(n.t, err)
	require.False(n.t, status.AwaitsLogin)
}

// fakeWatch takes note of what it is told. Only locks of files keep those apart who tell it, of which the race detector knows nothing.
type fakeWatch struct {
	mu    sync.Mutex
	err   error
	armed bool
	calls []string
}

func (w *fakeWatch) Arm(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, "arm")
	w.armed = w.err == nil
	return w.err
}

func (w *fakeWatch) Disarm(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, "disarm")
	w.armed = false
	return nil
}

func (w *fakeWatch) Armed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.armed
}

// guardedNode is a node on which a run changes the firewall, and something else.
func guardedNode(t *testing.T, root string) (*testNode, node.Request) {
	t.Helper()
	n := layOut(t, root)
	n.succeed(request(1, "/etc/nftables/a.conf", "old", "/etc/kubelet/a", "old"))
	n.units.calls = nil
	return n, request(2, "/etc/nftables/a.conf", "drop", "/etc/kubelet/a", "new", "/etc/quiet/b", "new")
}

func (n *testNode) requireBack(status node.Status, where string) {
	n.t.Helper()
	require.Equal(n.t, node.Failed, status.State, "%s: %s", where, status.Message)
	require.True(n.t, status.RolledBack, "%s: %s", where, status.Message)
	require.Equal(n.t, "old", n.content("/etc/nftables/a.conf"), where)
	require.Equal(n.t, "old", n.content("/etc/kubelet/a"), where)
	require.Equal(n.t, "(missing)", n.content("/etc/quiet/b"), where)
	rec, err := n.agent.state.loadRecord()
	require.NoError(n.t, err)
	require.Equal(n.t, "digest-1", rec.Digest, where)
	require.False(n.t, n.watch.armed, where)
	if where != "end known" {
		n.noLeftovers()
	}
}

func TestALoginEndsTheWait(t *testing.T) {
	n, req := guardedNode(t, t.TempDir())
	status := n.succeed(req)
	require.False(t, status.AwaitsLogin)
	require.Equal(t, "drop", n.content("/etc/nftables/a.conf"))
	events := n.events()
	require.Equal(t, []string{
		"claimed", "run-started",
		"step-started arm the way back", "step-done arm the way back",
		"step-started keep copies", "step-done keep copies",
		"step-started write /etc/kubelet/a", "step-done write /etc/kubelet/a",
		"step-started write /etc/nftables/a.conf", "step-done write /etc/nftables/a.conf",
		"step-started write /etc/quiet/b", "step-done write /etc/quiet/b",
		"step-started reload nftables.service", "step-done reload nftables.service",
		"step-started restart kubelet.service", "step-done restart kubelet.service",
		"step-started verify", "step-done verify",
		"login-awaited confirm the way in", "step-done confirm the way in",
		"step-started record", "step-done record",
		"run-done",
	}, events[len(events)-23:])
	require.False(t, n.watch.armed)
}

func TestWithoutALoginTheNodePutsEverythingBack(t *testing.T) {
	n, req := guardedNode(t, t.TempDir())
	n.login = nil
	status := n.fail(req)
	n.requireBack(status, "")
	require.Equal(t, "confirm the way in failed: refit could not log in to the node any more; the files were put back, nftables.service reloaded and kubelet.service restarted",
		status.Message)
	require.Equal(t, []string{"reload nftables.service", "restart kubelet.service", "reload nftables.service", "reset-failed kubelet.service", "restart kubelet.service"}, n.units.calls)

	t.Run("and a login that comes then is refused", func(t *testing.T) {
		_, err := n.agent.Status(t.Context(), node.StatusRequest{Protocol: node.Protocol, Machine: machine, Digest: req.Digest, Token: req.Token, Confirm: true})
		require.Equal(t, node.ReasonNotAwaited, asAgentError(err).Reason)
	})
	t.Run("and another try can succeed", func(t *testing.T) {
		n.login = n.logIn
		req.Token = 3
		n.succeed(req)
	})
}

func TestHowLongALoginIsAwaited(t *testing.T) {
	for name, tc := range map[string]struct{ rule, want time.Duration }{
		"by default":      {0, 2 * time.Minute},
		"as policies say": {5 * time.Minute, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			n, req := guardedNode(t, t.TempDir())
			req.Rules.ConfirmWithin = tc.rule
			var begun, ended time.Duration
			n.agent.boundary = func(where string) error {
				switch where {
				case "begun " + stepConfirm:
					_, begun, _ = uptimeOf(n.agent.root)
				case "ended " + stepConfirm:
					_, ended, _ = uptimeOf(n.agent.root)
				}
				return nil
			}
			n.login = func() {}
			n.fail(req)
			require.Equal(t, tc.want, ended-begun)
		})
	}
	n, req := guardedNode(t, t.TempDir())
	req.Rules.ConfirmWithin = time.Second
	require.Contains(t, n.refuse(req, node.ReasonInvalid), "confirmWithin")
}

func TestWhoeverWaitsForTheEndIsToldThatALoginIsAwaited(t *testing.T) {
	n, req := guardedNode(t, t.TempDir())
	ask := node.StatusRequest{Protocol: node.Protocol, Machine: machine, Digest: req.Digest, WaitSeconds: 3600}
	n.login = func() {
		n.login = n.logIn
		status, err := n.newAgent().Status(t.Context(), ask)
		require.NoError(t, err)
		require.True(t, status.AwaitsLogin)
		require.Equal(t, stepConfirm, status.Step)
		require.Equal(t, int64(2), status.Token)
		require.Equal(t, "/etc/nftables/a.conf was changed, which is on the way by which refit comes in: the node awaits a login of refit's until "+
			"2026-01-02T03:06:05Z, and puts everything back if none comes", status.Message)
	}
	n.succeed(req)
}

func TestOnlyTheRunsOwnTokenConfirms(t *testing.T) {
	n, req := guardedNode(t, t.TempDir())
	confirm := func(edit func(*node.StatusRequest)) error {
		ask := node.StatusRequest{Protocol: node.Protocol, Machine: machine, Digest: req.Digest, Token: req.Token, Confirm: true}
		edit(&ask)
		_, err := n.newAgent().Status(t.Context(), ask)
		return err
	}
	asked := 0
	refused := func() {
		for _, edit := range []func(*node.StatusRequest){
			func(r *node.StatusRequest) { r.Token = 1 },
			func(r *node.StatusRequest) { r.Token = 3 },
			func(r *node.StatusRequest) { r.Token = 0 },
			func(r *node.StatusRequest) { r.Digest = "digest-1" },
			func(r *node.StatusRequest) { r.Digest = "" },
		} {
			err := confirm(edit)
			require.Error(t, err)
			require.Equal(t, node.ReasonNotAwaited, asAgentError(err).Reason)
		}
		asked++
	}
	n.login = refused
	n.requireBack(n.fail(req), "")
	require.NotZero(t, asked)

	t.Run("nor does one that comes before the wait", func(t *testing.T) {
		n.login = nil
		req.Token = 3
		n.at("before verify", func() {
			require.Equal(t, node.ReasonNotAwaited, asAgentError(confirm(func(*node.StatusRequest) {})).Reason)
		})
		n.requireBack(n.fail(req), "")
	})
	t.Run("nor one that comes too late", func(t *testing.T) {
		n, req := guardedNode(t, t.TempDir())
		n.login = func() {
			n.up(2 * time.Minute)
			_, err := n.newAgent().Status(t.Context(), node.StatusRequest{Protocol: node.Protocol, Machine: machine, Digest: req.Digest, Token: req.Token, Confirm: true})
			require.Equal(t, node.ReasonNotAwaited, asAgentError(err).Reason)
		}
		n.requireBack(n.fail(req), "")
	})
	t.Run("and it may do so twice, if the answer was lost", func(t *testing.T) {
		n, req := guardedNode(t, t.TempDir())
		n.login = func() { n.logIn(); n.logIn() }
		n.succeed(req)
		_, err := n.agent.Status(t.Context(), node.StatusRequest{Protocol: node.Protocol, Machine: machine, Digest: req.Digest, Token: req.Token, Confirm: true})
		require.NoError(t, err)
	})
}

// alone has the node go on by itself, as its timer does: refit never comes.
func (n *testNode) alone(between func()) node.Status {
	for range 20 {
		_ = n.agent.Resume(context.Background())
		last, err := n.agent.state.loadStatus()
		require.NoError(n.t, err)
		if last.Status.State != node.Running && !n.watch.armed {
			return last.Status
		}
		if !n.watch.armed { // nothing was changed yet
			require.Equal(n.t, 0, n.count("step-started keep copies")-1)
			n.newProcess()
			_, _ = n.agent.Run(context.Background())
		}
		between()
	}
	require.Fail(n.t, "the run does not end")
	return node.Status{}
}

func TestDeathInEachStateLeavesTheRollbackToTheNodeWalk(t *testing.T) {
	t.Parallel()
	for what, between := range map[string]func(n *testNode, boots int){
		"process": func(n *testNode, _ int) { n.newProcess() },
		"power": func(n *testNode, boots int) {
			n.put("/proc/1/stat", fmt.Sprintf("1 (init) S 0 1 1 0 -1 4194560 2826 14281 119 108 4 6 12 13 20 0 1 0 %d 19996672 27\n", boots+2))
			n.put("/proc/uptime", "10.00 1.00\n")
			n.newProcess()
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			deaths := 0
			for nth := 0; ; nth += stride() {
				n, req := guardedNode(t, memoryDir(t))
				n.login = nil
				died := n.dieAt(nth)
				_, _ = n.agent.Apply(t.Context(), req)
				if *died == "" {
					break
				}
				boots := 0
				between(n, boots)
				status := n.alone(func() { boots++; between(n, boots) })
				if *died == "work written" { // the run had not begun
					continue
				}
				n.requireBack(status, *died)
				n.eachStepOnce(*died)
				deaths++
			}
			assert.Greater(t, deaths, 40/stride())
		})
	}
}

func TestTheNodeIsBootedAgainWhereTheWayInWasClosedByARebootWalk(t *testing.T) {
	t.Parallel()
	atEach := func(nth int) (died string) {
		n := layOut(t, memoryDir(t))
		n.succeed(request(1, "/etc/nftables/a.conf", "old", "/etc/kubelet/a", "old"))
		b := newBootNode(n)
		b.login = nil
		req := request(2, "/etc/nftables/a.conf", "drop", "/etc/kubelet/a", "new", "/etc/quiet/b", "new", "/etc/boot/a", "new")
		b.died = b.dieAt(nth)
		b.deadly = b.agent.boundary
		_, _ = b.agent.Apply(t.Context(), req)
		next := func() {
			if b.due {
				b.start()
			} else {
				b.newProcess()
			}
		}
		next()
		status := b.alone(next)
		if *b.died == "work written" {
			return *b.died
		}
		b.requireBack(status, *b.died)
		require.Equal(t, "(missing)", b.content("/etc/boot/a"))
		require.Equal(t, 3, b.boots, "with the new files, and with the old ones, after death at %q", *b.died)
		require.Equal(t, 2, b.asked(), *b.died)
		require.Equal(t, "confirm the way in failed: refit could not log in to the node any more; the files were put back, and the node was rebooted with that", status.Message)
		b.eachStepOnce(*b.died)
		return *b.died
	}
	deaths := 0
	for ; atEach(deaths*stride()) != ""; deaths++ {
	}
	require.Greater(t, deaths, 50/stride())
}

func TestALoginAfterAReboot(t *testing.T) {
	n := layOut(t, t.TempDir())
	b := newBootNode(n)
	req := request(2, "/etc/nftables/a.conf", "new", "/etc/boot/a", "new")
	require.True(t, b.apply(req).Rebooting)
	require.True(t, b.watch.armed, "across the reboot")
	require.NoError(t, b.agent.Resume(t.Context()))
	require.Equal(t, 1, b.asked(), "while the node goes down nothing is taken up")
	b.start()
	require.NoError(t, b.agent.Resume(t.Context()))
	status := b.succeed(req)
	require.Equal(t, "changed 2 files, then: reboot", status.Message)
	require.Equal(t, 2, b.boots)
	require.False(t, b.watch.armed)
}

func TestARunThatOnlyWritesFilesAwaitsNoLogin(t *testing.T) {
	n := newTestNode(t)
	n.login = func() { require.Fail(t, "no login is awaited") }
	n.succeed(request(1, "/etc/drain/a", "a", "/etc/quiet/b", "b"))
	require.Empty(t, n.watch.calls)
	require.Zero(t, n.count("login-awaited "+stepConfirm))
}

func TestNothingIsChangedWhereNothingWouldPutItBack(t *testing.T) {
	n, req := guardedNode(t, t.TempDir())
	n.watch.err = errors.New("systemctl enable refit-resume.timer: exit status 1")
	status := n.fail(req)
	require.Equal(t, "arm the way back failed: systemctl enable refit-resume.timer: exit status 1; nothing was changed on the node", status.Message)
	n.requireBack(status, "")
	require.Empty(t, n.units.calls)
}

func TestANodeThatIsToBeLookedAtCanBeReached(t *testing.T) {
	for name, tc := range map[string]struct {
		onFailure disruption.OnFailure
		login     bool
		back      bool
		message   string
	}{
		"stopped, if refit comes in":     {disruption.StopOnFailure, true, false, "the node was left as it is, as the policy says"},
		"else put back":                  {disruption.StopOnFailure, false, true, "then refit could not log in any more; the files were put back"},
		"and never left to a reboot":     {disruption.RebootOnFailure, false, true, "the files were put back"},
		"by which nothing is awaited":    {disruption.RebootOnFailure, true, true, "the files were put back"},
		"as it does where nobody says":   {"", false, true, "the files were put back"},
		"be it that refit could come in": {disruption.RollbackOnFailure, true, true, "the files were put back"},
	} {
		t.Run(name, func(t *testing.T) {
			n, req := guardedNode(t, t.TempDir())
			req.Rules.OnFailure = tc.onFailure
			if !tc.login {
				n.login = nil
			}
			n.units.hook = func(_ context.Context, call string) error {
				if call == "restart kubelet.service" && n.content("/etc/kubelet/a") == "new" {
					return errors.New("exit status 1")
				}
				return nil
			}
			status := n.fail(req)
			require.Contains(t, status.Message, tc.message)
			require.True(t, strings.HasPrefix(status.Message, "restart kubelet.service failed: "), status.Message)
			if tc.back {
				n.requireBack(status, name)
			} else {
				require.Equal(t, "drop", n.content("/etc/nftables/a.conf"))
			}
		})
	}
}
