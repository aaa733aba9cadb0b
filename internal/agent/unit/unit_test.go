package unit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/host/hosttest"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const name = "chrony.service"

var (
	running = host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled"}
	stopped = host.UnitState{LoadState: "loaded", ActiveState: "inactive", UnitFileState: "disabled"}
	masked  = host.UnitState{LoadState: "masked", ActiveState: "inactive", UnitFileState: "masked"}
	missing = host.UnitState{LoadState: "not-found", ActiveState: "inactive"}
)

func wanted(edit func(u *node.Unit)) *node.Resource {
	u := node.Unit{Name: name}
	edit(&u)
	return &node.Resource{Unit: &u}
}

func on(u *node.Unit)  { u.Enabled, u.Active = new(true), new(true) }
func off(u *node.Unit) { u.Enabled, u.Active = new(false), new(false) }

func newUnit(s host.UnitState) (*Kind, *hosttest.Units) {
	f := &hosttest.Units{States: map[string]host.UnitState{name: s}}
	return New(host.Host{Units: f}), f
}

func TestPlan(t *testing.T) {
	tests := map[string]struct {
		is           host.UnitState
		was, desired *node.Resource
		operation    node.Operation
		conflict     bool
		drift        []string
		note         string
	}{
		"as it is wanted":                          {is: running, desired: wanted(on)},
		"nothing is said about it":                 {is: running, desired: wanted(func(*node.Unit) {})},
		"to be stopped":                            {is: running, desired: wanted(off), operation: node.Write},
		"to be started, which it was by the specs": {is: stopped, was: wanted(on), desired: wanted(on), drift: []string{"enabled", "active"}},
		"masked by somebody":                       {is: masked, was: wanted(on), desired: wanted(on), drift: []string{"enabled", "active"}},
		"to be masked":                             {is: stopped, desired: wanted(func(u *node.Unit) { u.Masked = new(true) }), operation: node.Write},
		"changed by the specs":                     {is: running, was: wanted(on), desired: wanted(off), operation: node.Write},
		"changed by somebody too": {
			is: host.UnitState{LoadState: "loaded", ActiveState: "inactive", UnitFileState: "enabled"}, was: wanted(on), desired: wanted(off),
			operation: node.Write, conflict: true,
		},
		"still starting is running":               {is: host.UnitState{LoadState: "loaded", ActiveState: "activating", UnitFileState: "enabled"}, desired: wanted(on)},
		"not installed, and not to run":           {is: missing, desired: wanted(off)},
		"not installed, and to run":               {is: missing, desired: wanted(on), operation: node.Write},
		"not installed, and ran":                  {is: missing, was: wanted(on), desired: wanted(on), drift: []string{"missing"}},
		"no longer listed":                        {is: running, was: wanted(on)},
		"not installed, not to run, not masked":   {is: missing, desired: wanted(func(u *node.Unit) { off(u); u.Masked = new(false) })},
		"linked from elsewhere counts as enabled": {is: host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "linked"}, desired: wanted(on)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			k, units := newUnit(tc.is)
			a, err := k.Plan(t.Context(), kind.Question{Was: tc.was, Known: true, Desired: tc.desired})
			require.NoError(t, err)
			require.Equal(t, tc.operation, a.Operation)
			require.Equal(t, tc.conflict, a.Conflict)
			require.Equal(t, tc.drift, a.Drift)
			require.Empty(t, a.Blocked)
			require.Empty(t, units.Calls, "planning changes nothing")
			if a.Operation != "" {
				require.Equal(t, []disruption.Action{{Type: disruption.None}}, a.Actions)
			}
		})
	}
	t.Run("a node without systemd", func(t *testing.T) {
		a, err := New(host.Host{}).Plan(t.Context(), kind.Question{Desired: wanted(on)})
		require.NoError(t, err)
		require.Contains(t, a.Blocked, "no systemctl")
	})
	t.Run("drift is changed when it is to be repaired", func(t *testing.T) {
		k, _ := newUnit(stopped)
		a, err := k.Plan(t.Context(), kind.Question{Was: wanted(on), Known: true, Desired: wanted(on), Repair: true})
		require.NoError(t, err)
		require.Equal(t, node.Write, a.Operation)
	})
}

func TestMakeAndUndo(t *testing.T) {
	tests := map[string]struct {
		is         host.UnitState
		desired    func(u *node.Unit)
		make, undo []string
	}{
		"start":                          {is: stopped, desired: on, make: []string{"enable", "start"}, undo: []string{"disable", "stop"}},
		"stop":                           {is: running, desired: off, make: []string{"disable", "stop"}, undo: []string{"enable", "start"}},
		"only enable":                    {is: stopped, desired: func(u *node.Unit) { u.Enabled = new(true) }, make: []string{"enable"}, undo: []string{"disable"}},
		"unmask before it is started":    {is: masked, desired: func(u *node.Unit) { on(u); u.Masked = new(false) }, make: []string{"unmask", "enable", "start"}, undo: []string{"stop", "mask"}},
		"stop before it is masked":       {is: running, desired: func(u *node.Unit) { off(u); u.Masked = new(true) }, make: []string{"disable", "stop", "mask"}, undo: []string{"unmask", "enable", "start"}},
		"what ran without being enabled": {is: host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "disabled"}, desired: off, make: []string{"disable", "stop"}, undo: []string{"disable", "start"}},
	}
	for title, tc := range tests {
		t.Run(title, func(t *testing.T) {
			k, units := newUnit(tc.is)
			q := kind.Question{Known: true, Desired: wanted(tc.desired)}
			a, err := k.Plan(t.Context(), q)
			require.NoError(t, err)
			c := kind.Change{Desired: q.Desired, Before: a.Before}
			for range 2 {
				units.Calls = nil
				_, err := k.Make(t.Context(), c)
				require.NoError(t, err)
				require.Equal(t, of(tc.make), units.Calls)
			}
			verified, err := k.Plan(t.Context(), kind.Question{Was: q.Desired, Known: true, Desired: q.Desired})
			require.NoError(t, err)
			require.Equal(t, kind.Answer{}, verified)
			for range 2 {
				units.Calls = nil
				require.NoError(t, k.Undo(t.Context(), c))
				require.Equal(t, of(tc.undo), units.Calls)
			}
			require.Equal(t, tc.is, units.States[name])
		})
	}
}

func of(verbs []string) []string {
	var calls []string
	for _, v := range verbs {
		calls = append(calls, v+" "+name)
	}
	return calls
}

func TestFailures(t *testing.T) {
	k, units := newUnit(running)
	q := kind.Question{Known: true, Desired: wanted(off)}
	a, err := k.Plan(t.Context(), q)
	require.NoError(t, err)
	c := kind.Change{Desired: q.Desired, Before: a.Before}
	units.Fails = "stop"
	_, err = k.Make(t.Context(), c)
	require.ErrorContains(t, err, "systemctl stop chrony.service")
	require.ErrorContains(t, err, "journalctl -u chrony.service")
	require.NoError(t, k.Undo(t.Context(), c))
	require.Equal(t, running, units.States[name])
	c.Before = nil
	require.ErrorContains(t, k.Undo(t.Context(), c), "can't be read")
}
