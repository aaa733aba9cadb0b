package unit

import (
	"os"
	"path/filepath"
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
		switches     bool
	}{
		"as it is wanted":                          {is: running, desired: wanted(on)},
		"nothing is said about it":                 {is: running, desired: wanted(func(*node.Unit) {})},
		"to be stopped":                            {is: running, desired: wanted(off), operation: node.Write, switches: true},
		"to be started, which it was by the specs": {is: stopped, was: wanted(on), desired: wanted(on), drift: []string{"enabled", "active"}},
		"masked by somebody":                       {is: masked, was: wanted(on), desired: wanted(on), drift: []string{"enabled", "active"}},
		"to be masked":                             {is: stopped, desired: wanted(func(u *node.Unit) { u.Masked = new(true) }), operation: node.Write},
		"changed by the specs":                     {is: running, was: wanted(on), desired: wanted(off), operation: node.Write, switches: true},
		"changed by somebody too": {
			is: host.UnitState{LoadState: "loaded", ActiveState: "inactive", UnitFileState: "enabled"}, was: wanted(on), desired: wanted(off),
			operation: node.Write, conflict: true,
		},
		"still starting is running":               {is: host.UnitState{LoadState: "loaded", ActiveState: "activating", UnitFileState: "enabled"}, desired: wanted(on)},
		"not installed, and not to run":           {is: missing, desired: wanted(off)},
		"not installed, and to run":               {is: missing, desired: wanted(on), operation: node.Write, switches: true},
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
			require.Equal(t, tc.switches, a.Switches, "it is started or stopped")
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
				require.Equal(t, calls(tc.make...), units.Calls)
			}
			verified, err := k.Plan(t.Context(), kind.Question{Was: q.Desired, Known: true, Desired: q.Desired})
			require.NoError(t, err)
			require.Equal(t, kind.Answer{}, verified)
			for range 2 {
				units.Calls = nil
				require.NoError(t, k.Undo(t.Context(), c))
				require.Equal(t, calls(tc.undo...), units.Calls)
			}
			require.Equal(t, tc.is, units.States[name])
		})
	}
}

func calls(verbs ...string) []string {
	var all []string
	for _, v := range verbs {
		all = append(all, v+" "+name)
	}
	return all
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

func TestPlanOfAUnitWithItsFile(t *testing.T) {
	const path = "/etc/systemd/system/" + name
	of := func(enabled *bool) *node.Resource {
		return &node.Resource{Unit: &node.Unit{Name: name, Enabled: enabled, File: path}}
	}
	left := of(nil)
	tests := map[string]struct {
		is        host.UnitState
		q         kind.Question
		there     string // a file that the node has
		operation node.Operation
		applied   *node.Resource
		drift     []string
	}{
		"new":                              {is: missing, q: kind.Question{Desired: of(new(true)), New: true}, operation: node.Write},
		"new, and masked":                  {is: masked, q: kind.Question{Desired: of(new(true)), New: true}, applied: left},
		"new, and enabled by a failed run": {is: running, q: kind.Question{Desired: of(new(true)), New: true}},
		"new, and left by a failed run":    {is: stopped, q: kind.Question{Desired: of(new(true)), New: true}, operation: node.Write},
		"new, and from a package too":      {is: stopped, q: kind.Question{Desired: of(new(true)), New: true}, there: "/lib/systemd/system/" + name, applied: left},
		"new, and from a generator too":    {is: stopped, q: kind.Question{Desired: of(new(true)), New: true}, there: "/run/systemd/generator/" + name, applied: left},
		"not new":                          {is: missing, q: kind.Question{Desired: of(new(true))}, applied: left},
		"somebody's":                       {is: stopped, q: kind.Question{Was: left, Desired: of(new(true))}, applied: left},
		"somebody's, and repaired":         {is: stopped, q: kind.Question{Was: left, Desired: of(new(true)), Repair: true}, applied: left},
		"as it was made":                   {is: running, q: kind.Question{Was: of(new(true)), Desired: of(new(true))}, applied: of(new(true))},
		"disabled by somebody":             {is: stopped, q: kind.Question{Was: of(new(true)), Desired: of(new(true))}, applied: of(new(true)), drift: []string{"enabled"}},
		"to be repaired":                   {is: stopped, q: kind.Question{Was: of(new(true)), Desired: of(new(true)), Repair: true}, operation: node.Write},
		"masked, and to be repaired":       {is: masked, q: kind.Question{Was: of(new(true)), Desired: of(new(true)), Repair: true}, applied: of(new(true)), drift: []string{"enabled"}},
		"its file goes":                    {is: running, q: kind.Question{Was: of(new(true)), Files: map[string][]byte{path: nil}}, operation: node.Remove},
		"its file goes, and it is off":     {is: stopped, q: kind.Question{Was: of(new(true)), Files: map[string][]byte{path: nil}}},
		"its file stays":                   {is: running, q: kind.Question{Was: of(new(true)), Files: map[string][]byte{}}},
		"its file has no [Install] now":    {is: running, q: kind.Question{Was: of(new(true)), Files: map[string][]byte{path: {}}}, operation: node.Remove},
		"the file of somebody's goes":      {is: running, q: kind.Question{Was: left, Files: map[string][]byte{path: nil}}, operation: node.Remove},
		"what was before somebody's":       {is: running, q: kind.Question{Was: left, Files: map[string][]byte{path: {}}}},
		"a package's unit stays":           {is: running, q: kind.Question{Was: left, Files: map[string][]byte{path: nil}}, there: "/usr/lib/systemd/system/" + name},
		"gone, and looked at afterwards":   {is: missing, q: kind.Question{Was: of(new(true))}},
		"gone, and still enabled":          {is: running, q: kind.Question{Was: of(new(true))}, operation: node.Remove},
	}
	for title, tc := range tests {
		t.Run(title, func(t *testing.T) {
			k, units := newUnit(tc.is)
			k.host.Dir = t.TempDir()
			if tc.there != "" {
				require.NoError(t, os.MkdirAll(filepath.Join(k.host.Dir, filepath.Dir(tc.there)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(k.host.Dir, tc.there), nil, 0o644))
			}
			tc.q.Known = true
			a, err := k.Plan(t.Context(), tc.q)
			require.NoError(t, err)
			require.Equal(t, tc.operation, a.Operation)
			require.Equal(t, tc.applied, a.Applied)
			require.Equal(t, tc.drift, a.Drift)
			require.Empty(t, units.Calls)
		})
	}
	t.Run("a node without systemd", func(t *testing.T) {
		k := New(host.Host{Root: host.Root{Dir: t.TempDir()}})
		_, err := k.Plan(t.Context(), kind.Question{Desired: of(new(true)), New: true})
		require.ErrorContains(t, err, "no systemctl")
		a, err := k.Plan(t.Context(), kind.Question{Desired: of(new(true))})
		require.NoError(t, err, "what bootstrap has laid down is not asked for")
		require.Equal(t, left, a.Applied)
	})
	t.Run("made and undone twice", func(t *testing.T) {
		for verbs, c := range map[[2]string]kind.Change{
			{"enable", "disable"}: {Desired: of(new(true)), Before: []byte(`{"LoadState":"not-found"}`)},
			{"disable", "enable"}: {Was: of(new(true)), Before: []byte(`{"LoadState":"loaded","UnitFileState":"enabled"}`)},
		} {
			k, units := newUnit(stopped)
			for range 2 {
				_, err := k.Make(t.Context(), c)
				require.NoError(t, err)
			}
			require.NoError(t, k.Undo(t.Context(), c))
			require.NoError(t, k.Undo(t.Context(), c))
			require.Equal(t, calls(verbs[0], verbs[0], verbs[1], verbs[1]), units.Calls)
		}
	})
}
