package agent

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/probe"
	"github.com/capi-refit/refit/internal/node"
)

func TestSoak(t *testing.T) {
	// Before the run it is asked once, once by verify, once at the beginning of the soak, then ten times in 20 s.
	const first, all = 3, 13
	elsewhere := func(p probe.Probe) probe.Probe { p.Elsewhere = true; return p }
	costly := func(p probe.Probe) probe.Probe { p.Costly = true; return p }
	same := func(p probe.Probe) probe.Probe { return p }
	for name, tc := range map[string]struct {
		of     func(probe.Probe) probe.Probe
		broken func(asked int) bool
		asked  int
		fails  string
	}{
		"holds": {of: same, broken: func(int) bool { return false }, asked: all},
		"what costs much is asked at the beginning and at the end": {of: costly, broken: func(int) bool { return false }, asked: first + 1},
		"a moment is no failure":                                   {of: same, broken: func(n int) bool { return n == first+6 || n == first+7 }, asked: all},
		"the second half counts":                                   {of: same, broken: func(n int) bool { return n > first+6 && n < first+20 }, fails: "it worked before and does not now: no"},
		"a moment at the end is waited for":                        {of: same, broken: func(n int) bool { return n == all || n == all+1 }, asked: all + 2},
		"what fails at the end fails":                              {of: same, broken: func(n int) bool { return n >= all && n < all+4 }, fails: "it worked before"},
		"what costs much can fail there":                           {of: costly, broken: func(n int) bool { return n >= first+1 && n < first+7 }, fails: "it worked before"},
		"an API server may be away for longer":                     {of: elsewhere, broken: func(n int) bool { return n > first+1 && n < first+20 }, asked: first + 20},
		"but not for good":                                         {of: elsewhere, broken: func(n int) bool { return n > first+1 && n < first+33 }, fails: "it worked before"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			n.put("/etc/kubelet/a", "old")
			f := &fakeProbe{asked: map[string]int{}, broken: func(_ string, n int) bool { return tc.broken(n) }}
			n.agent.probes = f.all(tc.of(f.named("it")))
			req := request(1, "/etc/kubelet/a", "new")
			req.Rules.Soak = new(20 * time.Second)
			if tc.fails == "" {
				n.succeed(req)
				require.Equal(t, tc.asked, f.asked["it"])
				return
			}
			status := n.fail(req)
			require.Equal(t, "watch the node", status.Step)
			require.Contains(t, status.Message, tc.fails)
			require.True(t, status.RolledBack, status.Message)
			require.Equal(t, "old", n.content("/etc/kubelet/a"))
		})
	}
}

// startsAgain has a unit be started again while the node is watched.
func (n *testNode) startsAgain(unit string) {
	waits := 0
	n.useClock(hookClock{func() {
		if waits++; waits == 3 {
			n.units.mu.Lock()
			n.units.states[unit] = host.UnitState{LoadState: "loaded", ActiveState: "active", Type: "simple", InvocationID: "2"}
			n.units.mu.Unlock()
		}
	}})
}

func TestSoakOfUnits(t *testing.T) {
	n := newTestNode(t)
	n.startsAgain("kubelet.service")
	req := request(1, "/etc/kubelet/a", "new")
	req.Rules.Soak = new(20 * time.Second)
	require.Contains(t, n.fail(req).Message, "watch the node failed: kubelet.service does not stay up")
}

type hookClock struct{ hook func() }

func (hookClock) Now() time.Time { return testClock{}.Now() }

func (c hookClock) Wait(ctx context.Context, d time.Duration) error {
	c.hook()
	return testClock{}.Wait(ctx, d)
}

func TestOnlyWhatDisturbsIsSoaked(t *testing.T) {
	for path, soaked := range map[string]bool{"/etc/quiet/a": false, "/etc/crio/a": false, "/etc/kubelet/a": true, "/etc/drain/a": true} {
		n := newTestNode(t)
		req := request(1, path, "a")
		req.Rules.Soak = new(4 * time.Second)
		n.succeed(req)
		require.Equal(t, soaked, slices.Contains(n.events(), "step-done watch the node"), path)
	}
}

func TestStatusWhileANodeIsWatched(t *testing.T) {
	n := newTestNode(t)
	req := request(1, "/etc/kubelet/a", "new")
	req.Rules.Soak = new(20 * time.Second)
	var seen node.Status
	n.useClock(hookClock{func() {
		if seen.State == "" {
			seen, _ = n.newAgent().Status(t.Context(), node.StatusRequest{Protocol: node.Protocol, Machine: machine})
		}
	}})
	n.succeed(req)
	require.Equal(t, node.Running, seen.State)
	require.Equal(t, "watch the node", seen.Step)
	require.Equal(t, "the node works; it is watched for 20s whether it goes on to", seen.Message)
}
