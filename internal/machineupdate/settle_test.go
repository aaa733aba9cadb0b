package machineupdate

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// TestSettle demands of each end what of the node is left in the status.
func TestSettle(t *testing.T) {
	at := metav1.Now()
	for name, tc := range map[string]struct {
		how                                       settlement
		marks, slot, admission, updaters, applies bool
	}{
		"it waits":                     {how: settledReleased, updaters: true},
		"nobody asks":                  {how: settledWithdrawn, updaters: true},
		"it fails and changes nothing": {how: settledUnchanged, slot: true, updaters: true},
		"it fails half way":            {how: settledHalfChanged, marks: true, slot: true, admission: true, updaters: true, applies: true},
		"it is given up":               {how: settledGivenUp},
		"it succeeds":                  {how: settledDone, admission: true, updaters: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := refitv1.MachineUpdateStatus{
				Node: &refitv1.NodeReference{}, Drain: &refitv1.DrainStatus{}, Slot: &refitv1.Slot{}, ApplyingSince: &at, RebootingSince: &at, SoakingSince: &at,
				Admission: &refitv1.Admission{Reason: "Open"}, Updaters: []refitv1.UpdaterRun{{Name: "a"}},
			}
			settle(&s, tc.how)
			require.Nil(t, s.RebootingSince)
			require.Nil(t, s.SoakingSince)
			require.Equal(t, tc.marks, s.Node != nil && s.Drain != nil)
			require.Equal(t, tc.marks, s.Node != nil || s.Drain != nil)
			require.Equal(t, tc.slot, s.Slot != nil)
			require.Equal(t, tc.admission, s.Admission != nil)
			require.Equal(t, tc.updaters, s.Updaters != nil)
			require.Equal(t, tc.applies, s.ApplyingSince != nil)
			require.Equal(t, tc.how != settledHalfChanged, clean(&s), "what is kept on the node keeps the finalizer")
		})
	}
}
