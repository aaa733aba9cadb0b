package changemanagement

import (
	"testing"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
)

// TestBudgetsOfAClusterThatWasMoved has an update ask before those of others have their status again.
func TestBudgetsOfAClusterThatWasMoved(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), anytime("few", budget(refitv1.Budget{MaxConcurrent: 1})),
		worker("m1"), worker("m2"), update("m1", started(inside), func(mu *refitv1.MachineUpdate) {
			mu.Spec.Record = &refitv1.UpdateRecord{Revision: 1, Status: mu.Status}
			mu.Status = refitv1.MachineUpdateStatus{}
		}), update("m2"))
	d := w.admit("m2")
	require.False(t, d.Open, d.Message)
}

func TestPoliciesThatAreNotReadYetAreMissing(t *testing.T) {
	known := anytime("known")
	known.UID = "known"
	w := newWorld(t, known)
	missing, err := w.policies.Missing(t.Context(), w, "fleet")
	require.NoError(t, err)
	require.Empty(t, missing)

	arrived := never("arrived")
	arrived.UID = "arrived"
	require.NoError(t, w.Create(t.Context(), arrived))
	missing, err = w.policies.Missing(t.Context(), w, "fleet")
	require.NoError(t, err)
	require.Equal(t, []string{"ChangeManagementPolicy arrived"}, missing)
	require.NoError(t, w.policies.Prime(t.Context()))
	missing, err = w.policies.Missing(t.Context(), w, "fleet")
	require.NoError(t, err)
	require.Empty(t, missing)

	_, err = NewPolicies(nil, nil, nil).Missing(t.Context(), w, "fleet")
	require.ErrorIs(t, err, policykind.ErrUnread)
}
