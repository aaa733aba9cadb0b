package agent

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const (
	appUnit = "app.service"
	appFile = "/etc/systemd/system/app.service"
)

// unitNode is a node whose units are those that have a file.
func unitNode(t *testing.T) *testNode {
	n := newTestNode(t)
	n.units.follow = true
	n.units.states[appUnit] = host.UnitState{LoadState: "not-found", ActiveState: "inactive"}
	n.units.hook = func(_ context.Context, call string) error {
		s := n.units.states[appUnit]
		s.LoadState = "loaded"
		if call == "restart "+appUnit {
			s.ActiveState = "active"
		}
		if n.content(appFile) == "(missing)" {
			s.LoadState, s.UnitFileState = "not-found", ""
		}
		n.units.states[appUnit] = s
		return nil
	}
	return n
}

// withApp is a request for a unit's file, and for the unit to be enabled with it.
func withApp(token int64, content string) node.Request {
	req := request(token, "/etc/quiet/a", "1", appFile, content)
	req.Resources = append(req.Resources, node.Resource{Unit: &node.Unit{Name: appUnit, Enabled: new(true), File: appFile}})
	return req
}

func (n *testNode) enabled() bool { return n.units.states[appUnit].Enabled() }

func TestUnitsThatComeWithTheirFiles(t *testing.T) {
	drift := []node.Drift{{Ref: node.Ref{Kind: node.UnitKind, Name: appUnit}, What: []string{"enabled"}}}
	disable := func(n *testNode) {
		n.units.states[appUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "disabled", Type: "simple"}
	}
	t.Run("are enabled once, and disabled when their file goes", func(t *testing.T) {
		n := unitNode(t)
		require.Equal(t, "changed 2 files, unit app.service, then: daemon-reload, restart app.service", n.succeed(withApp(1, "1")).Message)
		require.Equal(t, []string{"enable app.service", "daemon-reload", "restart app.service"}, n.units.calls)
		require.Empty(t, n.plan(withApp(2, "1")).Changes)
		n.succeed(withApp(2, "2"))
		require.NotContains(t, n.units.calls[3:], "enable app.service", "another content of the file is no other unit")
		require.Empty(t, n.drift().Drift)

		n.units.calls = nil
		n.succeed(request(3, "/etc/quiet/a", "1"))
		require.Equal(t, []string{"disable app.service", "daemon-reload", "stop app.service"}, n.units.calls, "while the file is there")
		require.Equal(t, "(missing)", n.content(appFile))
		require.Empty(t, n.drift().Drift)
		n.succeed(withApp(4, "1"))
		require.True(t, n.enabled(), "it is new again")
	})
	t.Run("have drifted when somebody has disabled them", func(t *testing.T) {
		n := unitNode(t)
		n.succeed(withApp(1, "1"))
		disable(n)
		require.Equal(t, drift, n.drift().Drift)
		require.Equal(t, drift, n.plan(withApp(2, "2")).Drift)
		n.succeed(withApp(2, "2"))
		require.False(t, n.enabled(), "an update leaves drift alone")
		require.Equal(t, drift, n.drift().Drift, "and drift it stays")
		req := withApp(3, "2")
		req.Digest, req.Repair = "digest-2", true
		n.succeed(req)
		require.True(t, n.enabled())
		require.Empty(t, n.drift().Drift)
	})
	t.Run("are left as they are where the node has them already", func(t *testing.T) {
		for name, prepare := range map[string]func(n *testNode, req *node.Request){
			"by bootstrap": func(_ *testNode, req *node.Request) {
				req.Baseline.Files = append(req.Baseline.Files, laidDown(appFile, "0"))
			},
			"by somebody":          func(*testNode, *node.Request) {},
			"and nothing is known": func(_ *testNode, req *node.Request) { req.Baseline = nil },
			"and refit had no file": func(n *testNode, _ *node.Request) {
				n.delete(appFile)
				n.put("/usr/lib/systemd/system/app.service", "0")
			},
		} {
			t.Run(name, func(t *testing.T) {
				n := unitNode(t)
				n.put(appFile, "0")
				disable(n)
				req := withApp(1, "1")
				prepare(n, &req)
				n.succeed(req)
				require.False(t, n.enabled())
				require.Equal(t, "1", n.content(appFile))
				require.Empty(t, n.drift().Drift, "that it is not enabled is nothing that refit has applied")
				n.succeed(withApp(2, "2"))
				require.False(t, n.enabled())
			})
		}
	})
	t.Run("that bootstrap has laid down and the node has enabled are disabled when they go", func(t *testing.T) {
		n := unitNode(t)
		n.put(appFile, "0")
		n.units.states[appUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled", Type: "simple"}
		req := withApp(1, "0")
		req.Baseline.Files = append(req.Baseline.Files, laidDown(appFile, "0"))
		n.succeed(req)
		n.succeed(request(2, "/etc/quiet/a", "1"))
		require.Contains(t, n.units.calls, "disable app.service")
		require.Equal(t, "(missing)", n.content(appFile))
	})
	t.Run("stay enabled where the node has them from elsewhere too", func(t *testing.T) {
		n := unitNode(t)
		n.put("/usr/lib/systemd/system/app.service", "0")
		n.units.hook = nil
		n.units.states[appUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled", Type: "simple"}
		n.succeed(withApp(1, "1"))
		n.succeed(request(2, "/etc/quiet/a", "1"))
		require.NotContains(t, n.units.calls, "disable app.service")
	})
	t.Run("are disabled when their file no longer says what they are enabled for", func(t *testing.T) {
		n := unitNode(t)
		n.succeed(withApp(1, "1"))
		n.succeed(request(2, "/etc/quiet/a", "1", appFile, "2"))
		require.False(t, n.enabled())
		require.Equal(t, "2", n.content(appFile))
	})
	t.Run("stay enabled when their file can't be made in place any more", func(t *testing.T) {
		n := unitNode(t)
		n.succeed(withApp(1, "1"))
		req := request(2, "/etc/quiet/a", "2")
		req.Resources = append(req.Resources, node.Resource{File: &node.File{Path: appFile, Unmanaged: true}})
		n.succeed(req)
		require.True(t, n.enabled())
	})
}

func TestUnitsThatComeWithTheirFilesAreRolledBack(t *testing.T) {
	t.Run("new ones are disabled before their file goes", func(t *testing.T) {
		n := unitNode(t)
		n.units.fails["restart app.service"] = errRefused
		require.True(t, n.fail(withApp(1, "1")).RolledBack)
		require.Equal(t, []string{"enable app.service", "daemon-reload", "restart app.service", "disable app.service"}, n.units.calls[:4])
		require.Equal(t, "(missing)", n.content(appFile))
	})
	t.Run("those that go are enabled once their file is back", func(t *testing.T) {
		n := unitNode(t)
		n.succeed(withApp(1, "1"))
		n.units.fails["stop app.service"] = errRefused
		require.True(t, n.fail(request(2, "/etc/quiet/a", "1")).RolledBack)
		require.True(t, n.enabled())
		require.Equal(t, "1", n.content(appFile))
	})
	t.Run("where they are left, the next run enables what the failed one has not", func(t *testing.T) {
		n := unitNode(t)
		n.units.fails["enable app.service"] = errRefused
		req := withApp(1, "1")
		req.Rules.OnFailure = disruption.StopOnFailure
		require.False(t, n.fail(req).RolledBack)
		require.Equal(t, "1", n.content(appFile))
		delete(n.units.fails, "enable app.service")
		n.succeed(withApp(2, "1"))
		require.True(t, n.enabled())
		n.succeed(request(3, "/etc/quiet/a", "1"))
		require.Equal(t, "(missing)", n.content(appFile))
		require.Contains(t, n.units.calls, "disable app.service")
	})
}

func TestUnitsThatDoNotBelongToTheirFilesAreRefused(t *testing.T) {
	for name, u := range map[string]node.Unit{
		"another name":            {Name: "other.service", Enabled: new(true), File: appFile},
		"a drop-in":               {Name: appUnit, Enabled: new(true), File: appFile + ".d/a.conf"},
		"a file elsewhere":        {Name: appUnit, Enabled: new(true), File: "/usr/lib/systemd/system/app.service"},
		"it is to run":            {Name: appUnit, Active: new(true), File: appFile},
		"it is to be masked":      {Name: appUnit, Masked: new(true), File: appFile},
		"it ends the system":      {Name: "reboot.target", Enabled: new(true), File: "/etc/systemd/system/reboot.target"},
		"one of the agent's own":  {Name: "refit-resume.timer", Enabled: new(true), File: "/etc/systemd/system/refit-resume.timer"},
		"the path is not a clean": {Name: appUnit, Enabled: new(true), File: "/etc/systemd/system/../system/app.service"},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(1)
			req.Resources = []node.Resource{{Unit: &u}}
			newTestNode(t).refuse(req, node.ReasonInvalid)
		})
	}
}
