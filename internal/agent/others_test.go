package agent

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

func unitRequest(token int64, u node.Unit) node.Request {
	req := request(token, "/etc/quiet/a", "1")
	req.Resources = append(req.Resources, node.Resource{Unit: &u})
	return req
}

func TestResourcesOfOtherKinds(t *testing.T) {
	off := node.Unit{Name: "chrony.service", Enabled: new(false), Active: new(false)}
	running := host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled"}
	newNode := func(t *testing.T) *testNode {
		n := newTestNode(t)
		n.units.states[off.Name] = running
		return n
	}
	t.Run("are made once, and are drift when the node changes them", func(t *testing.T) {
		n := newNode(t)
		n.units.follow = true
		require.Equal(t, "changed 1 file, unit chrony.service", n.succeed(unitRequest(1, off)).Message)
		require.Equal(t, []string{"disable chrony.service", "stop chrony.service"}, n.units.calls)
		require.Empty(t, n.plan(unitRequest(2, off)).Changes)
		n.succeed(unitRequest(2, off))
		require.Len(t, n.units.calls, 2, "the second time nothing is done")

		n.units.states[off.Name] = running
		plan := n.plan(unitRequest(3, off))
		require.Empty(t, plan.Changes)
		require.Equal(t, []node.Drift{{Ref: node.Ref{Kind: node.UnitKind, Name: off.Name}, What: []string{"enabled", "active"}}}, plan.Drift)
	})
	t.Run("are undone when the run fails", func(t *testing.T) {
		n := newNode(t)
		n.units.follow = true
		n.units.fails["stop chrony.service"] = errors.New("exit status 1")
		status := n.fail(unitRequest(1, off))
		require.Contains(t, status.Message, "systemctl stop chrony.service")
		require.True(t, status.RolledBack)
		require.Equal(t, "(missing)", n.content("/etc/quiet/a"))
		require.Equal(t, "enabled", n.units.states[off.Name].UnitFileState)
	})
	t.Run("are not done when the node does not come to show them", func(t *testing.T) {
		n := newNode(t)
		require.Contains(t, n.fail(unitRequest(1, off)).Message, "unit chrony.service is not as it was made: enabled, active")
	})
	t.Run("of a kind that is not known are refused", func(t *testing.T) {
		n := newNode(t)
		req := request(1)
		req.Resources = []node.Resource{{}}
		n.refuse(req, node.ReasonInvalid)
		req.Resources = []node.Resource{{Unit: &off, File: &node.File{Path: "/etc/quiet/a"}}}
		n.refuse(req, node.ReasonInvalid)
		req.Resources = []node.Resource{{Unit: &off}, {Unit: &off}}
		n.refuse(req, node.ReasonInvalid)
	})
}
