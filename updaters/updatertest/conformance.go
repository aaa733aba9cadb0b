// Package updatertest holds updaters to what every Updater promises.
package updatertest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters"
)

// Case is a change that an updater is asked about.
type Case struct {
	// Current and Desired are the specs of the object, in JSON.
	Current, Desired string
	Object           fieldset.Object
	APIVersion, Kind string
}

// Change compares the case's specs.
func (c Case) Change(t testing.TB) fieldset.Change {
	spec := func(text string) fieldset.Spec {
		v, err := fieldset.Decode([]byte(text))
		require.NoError(t, err)
		return fieldset.Spec{APIVersion: c.APIVersion, Kind: c.Kind, Value: v}
	}
	oc, differs := fieldset.NewObjectChange(c.Object, spec(c.Current), spec(c.Desired))
	if !differs {
		return nil
	}
	return fieldset.Change{oc}
}

// Conform checks that the updater keeps its promises for each change: it claims and leaves only fields of the change, none
// twice; the same change gives the same claim; what is covered has valid actions, and what is left has a reason; and it
// changes nothing of what it is given.
func Conform(t *testing.T, u updaters.Updater, cases map[string]Case) {
	require.NotEmpty(t, u.Name())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			change := c.Change(t)
			claim, err := u.Claim(t.Context(), change)
			require.NoError(t, err)
			heard := map[string]bool{}
			hear := func(f fieldset.Field) {
				id := string(f.Object) + f.String()
				_, ok := change.Index(f)
				require.True(t, ok, "%s is not a field of the change", f)
				require.False(t, heard[id], "%s is in the claim twice", f)
				heard[id] = true
			}
			for _, covered := range claim.Covered {
				hear(covered.Field)
				require.NotEmpty(t, covered.Actions, "%s is covered without an action; None is one", covered.Field)
				for _, a := range covered.Actions {
					require.NoError(t, a.Validate())
				}
			}
			for _, left := range claim.Left {
				hear(left.Field)
				require.NotEmpty(t, left.Reason, "%s is left without a reason", left.Field)
			}
			again, err := u.Claim(t.Context(), change)
			require.NoError(t, err)
			require.Equal(t, claim, again, "the same change gives the same claim")
			require.Equal(t, c.Change(t), change, "the change is not the updater's to change")
		})
	}
}
