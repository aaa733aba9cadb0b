package agent

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/capi-refit/refit/internal/node"
)

var (
	lawPaths    = []string{"/etc/quiet/a", "/etc/quiet/dir/b", "/etc/kubelet/c", "/etc/crio/d"}
	lawContents = []string{"", "1", "2", "3"} // "" for not there
)

// drawRequest wants some of the paths.
func drawRequest(t *rapid.T, token int64) node.Request {
	req := request(token)
	for _, p := range lawPaths {
		if content := rapid.SampledFrom(lawContents).Draw(t, "desired "+p); content != "" {
			r := wanted(p, content)
			r.File.Mode = rapid.SampledFrom([]string{"0644", "0600"}).Draw(t, "mode of "+p)
			req.Resources = append(req.Resources, r)
		}
	}
	return req
}

// edit is what somebody does on the node between two runs.
func (n *testNode) edit(t *rapid.T) {
	for _, p := range lawPaths {
		switch content := rapid.SampledFrom([]string{"leave", "leave", "", "1", "x"}).Draw(t, "edit "+p); {
		case content == "leave":
		case content != "":
			n.put(p, content)
		case n.content(p) != "(missing)":
			n.delete(p)
		}
	}
}

func (n *testNode) snapshot() map[string]string {
	out := map[string]string{}
	for _, p := range lawPaths {
		state, err := n.agent.root.Observe(p)
		require.NoError(n.t, err)
		out[p] = fmt.Sprint(state)
	}
	return out
}

func desiredOf(req node.Request) map[string]string {
	out := map[string]string{}
	for _, r := range req.Resources {
		out[r.File.Path] = string(r.File.Content) + r.File.Mode
	}
	return out
}

func TestLaws(t *testing.T) {
	t.Parallel()
	dir := memoryDir(t)
	rapid.Check(t, func(rt *rapid.T) {
		root, err := os.MkdirTemp(dir, "node")
		require.NoError(rt, err)
		n := layOut(rt, root)
		n.edit(rt)
		last := map[string]string{}
		for token := int64(1); token <= 2; token++ {
			req := drawRequest(rt, token)
			n.edit(rt)
			before := n.snapshot()
			plan := n.plan(req)
			require.Equal(rt, plan, n.plan(req), "the same node and request give the same plan")
			require.Equal(rt, before, n.snapshot(), "planning changes nothing")

			n.newProcess()
			if deaths := rapid.IntRange(0, 2).Draw(rt, "deaths"); deaths > 0 {
				n.dieRepeatedly(rt, req, deaths)
			}
			status := n.succeed(req)
			n.eachStepOnce("some boundaries")
			n.requirePlanned(rt, plan, before, req, last)

			journal, after := n.events(), n.snapshot()
			require.Equal(rt, status, n.succeed(req), "the second time is told as the first")
			require.Equal(rt, journal, n.events(), "the second time does nothing")
			require.Equal(rt, after, n.snapshot(), "the second time changes nothing")
			again := n.plan(req)
			require.Empty(rt, again.Changes, "the plan after apply is empty")
			require.Empty(rt, again.Actions)
			n.noLeftovers()
			last = desiredOf(req)
		}
	})
}

// requirePlanned requires that what changed is what the plan says, and nothing that the specs did not change.
func (n *testNode) requirePlanned(rt *rapid.T, plan node.Plan, before map[string]string, req node.Request, last map[string]string) {
	planned := map[string]bool{}
	for _, c := range plan.Changes {
		planned[c.Name] = true
	}
	after, want := n.snapshot(), desiredOf(req)
	for _, p := range lawPaths {
		if !planned[p] {
			require.Equal(rt, before[p], after[p], "%s changed and was not in the plan", p)
		}
		desired, isDesired := want[p]
		applied, wasApplied := last[p]
		if isDesired == wasApplied && desired == applied {
			require.False(rt, planned[p], "%s was planned although the specs did not change it", p)
		} else if isDesired {
			require.Equal(rt, desired[:len(desired)-4], n.content(p), "%s is not as desired", p)
		}
	}
}

// dieRepeatedly applies with processes that die, each at another boundary.
func (n *testNode) dieRepeatedly(rt *rapid.T, req node.Request, deaths int) {
	for range deaths {
		n.dieAt(rapid.IntRange(0, 40).Draw(rt, "boundary"))
		_, _ = n.agent.Apply(rt.Context(), req)
		n.newProcess()
	}
}
