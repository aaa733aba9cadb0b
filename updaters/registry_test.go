package updaters_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/updatertest"
)

// claims stands in for an updater that claims all fields, if it has an action.
type claims struct {
	name   string
	action disruption.ActionType
}

func (c claims) Name() string { return c.name }

func (c claims) Claim(_ context.Context, change fieldset.Change) (updaters.Claim, error) {
	var claim updaters.Claim
	for _, f := range change.Fields() {
		if c.action != "" {
			claim.Add(f, []disruption.Action{{Type: c.action}}, nil)
		}
	}
	return claim, nil
}

func TestWith(t *testing.T) {
	change := updatertest.Case{Object: fieldset.Machine, Current: `{"version":"a"}`, Desired: `{"version":"b"}`}.Change(t)
	base, err := updaters.NewRegistry(claims{name: "a"}, claims{name: "b", action: disruption.Drain})
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		with   []updaters.Updater
		by     string
		action disruption.ActionType
	}{
		"nothing else":                {nil, "b", disruption.Drain},
		"another of the same name":    {[]updaters.Updater{claims{"b", disruption.Reboot}}, "b", disruption.Reboot},
		"it keeps its place":          {[]updaters.Updater{claims{"a", disruption.None}}, "a", disruption.None},
		"one of a new name, the last": {[]updaters.Updater{claims{"c", disruption.None}}, "b", disruption.Drain},
		"both":                        {[]updaters.Updater{claims{"b", ""}, claims{"c", disruption.None}}, "c", disruption.None},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := base.With(tc.with...).Decide(t.Context(), change)
			require.NoError(t, err)
			require.Equal(t, tc.by, d[0].Updater)
			require.Equal(t, []disruption.Action{{Type: tc.action}}, d[0].Actions)
			d, err = base.Decide(t.Context(), change)
			require.NoError(t, err)
			require.Equal(t, disruption.Drain, d[0].Actions[0].Type, "it is left as it was")
		})
	}
}

// wants stands in for an updater that wants resources.
type wants struct {
	claims
	resources []updaters.Resource
}

func (w wants) Desire(updaters.Desired) ([]updaters.Resource, error) { return w.resources, nil }

func TestDesireTakesWhatIsSaidOfAUnitBeforeWhatItsFileSays(t *testing.T) {
	const path = "/etc/systemd/system/a.service"
	ofFile := updaters.Resource{Unit: &updaters.Unit{Name: "a.service", Enabled: new(true), File: path}}
	own := updaters.Resource{Unit: &updaters.Unit{Name: "a.service", Enabled: new(false)}}
	other := updaters.Resource{Unit: &updaters.Unit{Name: "b.service", Active: new(true)}}
	desire := func(resources ...updaters.Resource) []updaters.Resource {
		r, err := updaters.NewRegistry(wants{claims{name: "files"}, []updaters.Resource{ofFile}}, wants{claims{name: "vendor"}, resources})
		require.NoError(t, err)
		all, err := r.Desire(updaters.Desired{})
		require.NoError(t, err)
		return all
	}
	require.Equal(t, []updaters.Resource{ofFile, other}, desire(other))
	require.Equal(t, []updaters.Resource{own}, desire(own))
}
