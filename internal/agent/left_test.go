package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// TestWhatAFailedRunHasLeftIsTakenBack has a policy leave what a run has changed, and the specs go back to what was applied before.
func TestWhatAFailedRunHasLeftIsTakenBack(t *testing.T) {
	stopped := func(t *testing.T) *testNode {
		n := newTestNode(t)
		n.put("/etc/kubelet/there", "before refit")
		n.succeed(request(1, "/etc/kubelet/a", "one", "/etc/kubelet/b", "b"))
		n.units.fails["restart kubelet.service"] = errRefused
		n.fail(onFailure(disruption.StopOnFailure, 2, "/etc/kubelet/a", "two", "/etc/kubelet/new", "new", "/etc/kubelet/there", "refit's"))
		require.Equal(t, "two", n.content("/etc/kubelet/a"))
		require.Equal(t, "new", n.content("/etc/kubelet/new"))
		require.Equal(t, "(missing)", n.content("/etc/kubelet/b"))
		n.newProcess()
		return n
	}
	isBack := func(t *testing.T, n *testNode) {
		t.Helper()
		require.Equal(t, "one", n.content("/etc/kubelet/a"))
		require.Equal(t, "b", n.content("/etc/kubelet/b"))
		require.Equal(t, "(missing)", n.content("/etc/kubelet/new"))
		require.Equal(t, "before refit", n.content("/etc/kubelet/there"))
	}
	back := func(token int64) node.Request { return request(token, "/etc/kubelet/a", "one", "/etc/kubelet/b", "b") }
	t.Run("all of it", func(t *testing.T) {
		n := stopped(t)
		delete(n.units.fails, "restart kubelet.service")
		req := back(3)
		req.OnConflict = node.Refuse
		require.Empty(t, n.plan(req).Blocked, "nobody else has changed it")
		n.succeed(req)
		isBack(t, n)
		plan := n.plan(back(4))
		require.Empty(t, plan.Changes)
		require.Empty(t, plan.Drift)
	})
	t.Run("when going back fails at first", func(t *testing.T) {
		n := stopped(t)
		n.fail(back(3))
		n.newProcess()
		delete(n.units.fails, "restart kubelet.service")
		n.succeed(back(4))
		isBack(t, n)
	})
	t.Run("and what somebody has changed since is a conflict", func(t *testing.T) {
		n := stopped(t)
		n.put("/etc/kubelet/a", "a person's")
		n.put("/etc/kubelet/new", "a person's")
		req := back(3)
		req.OnConflict = node.Refuse
		require.Len(t, n.plan(req).Blocked, 2)
		delete(n.units.fails, "restart kubelet.service")
		n.succeed(back(4))
		isBack(t, n)
	})
	t.Run("and forgotten when it is what is desired", func(t *testing.T) {
		n := stopped(t)
		delete(n.units.fails, "restart kubelet.service")
		n.succeed(request(3, "/etc/kubelet/a", "two", "/etc/kubelet/new", "new", "/etc/kubelet/there", "refit's"))
		n.put("/etc/kubelet/a", "a person's")
		plan := n.plan(request(4, "/etc/kubelet/a", "two", "/etc/kubelet/new", "new", "/etc/kubelet/there", "refit's"))
		require.Empty(t, plan.Changes)
		require.Len(t, plan.Drift, 1)
	})
}

func TestAFileThatAFailedRunHasLeftGoesWithTheSpecs(t *testing.T) {
	n := newTestNode(t)
	n.succeed(request(1, "/etc/quiet/a", "1"))
	n.units.fails["restart kubelet.service"] = errRefused
	n.fail(onFailure(disruption.StopOnFailure, 2, "/etc/quiet/a", "1", "/etc/kubelet/new", "1"))
	delete(n.units.fails, "restart kubelet.service")
	n.succeed(request(3, "/etc/quiet/a", "1", "/etc/kubelet/new", "1"))
	n.succeed(request(4, "/etc/quiet/a", "1"))
	require.Equal(t, "(missing)", n.content("/etc/kubelet/new"), "it was not there before refit brought it")
}
