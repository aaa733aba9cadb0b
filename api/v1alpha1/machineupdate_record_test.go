package v1alpha1

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestRestored(t *testing.T) {
	record := &UpdateRecord{Revision: 3, MachineUID: "two", FormerMachineUIDs: []types.UID{"one", "two"}, Status: MachineUpdateStatus{
		ObservedDigest: "d", Token: 7, Slot: &Slot{}, Drift: &DriftStatus{Repairs: 2},
	}}
	for name, tc := range map[string]struct {
		status, want MachineUpdateStatus
		behind       bool
	}{
		"without a status": {
			MachineUpdateStatus{},
			MachineUpdateStatus{Phase: PhasePending, ObservedDigest: "d", Token: 7, Slot: &Slot{}, Drift: &DriftStatus{Repairs: 2}}, true,
		},
		"with one that is behind": {
			MachineUpdateStatus{RecordRevision: 2, Phase: PhaseSucceeded, ObservedDigest: "c", Token: 9, Address: "192.0.2.1", Drift: &DriftStatus{Total: 1, Repairs: 1}},
			MachineUpdateStatus{
				RecordRevision: 2, Phase: PhasePending, ObservedDigest: "d", Token: 9, Slot: &Slot{}, Address: "192.0.2.1",
				Drift: &DriftStatus{Total: 1, Repairs: 2},
			}, true,
		},
		"with one that is not": {
			MachineUpdateStatus{RecordRevision: 3, Phase: PhaseApplying}, MachineUpdateStatus{RecordRevision: 3, Phase: PhaseApplying}, false,
		},
		"with one that is newer, as after a restore from a backup": {
			MachineUpdateStatus{RecordRevision: 9, Phase: PhaseFailed}, MachineUpdateStatus{RecordRevision: 9, Phase: PhaseFailed}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			mu := &MachineUpdate{Spec: MachineUpdateSpec{Digest: "d", Record: record}, Status: tc.status}
			require.Equal(t, tc.behind, mu.Behind())
			before := mu.DeepCopy()
			got := mu.Restored()
			require.Equal(t, before, mu, "what is in a cache is not changed")
			got.Status.Message = ""
			require.Equal(t, tc.want, got.Status)
			again := got.Restored()
			again.Status.Message = ""
			require.Equal(t, got, again)
		})
	}
	mu := &MachineUpdate{}
	require.Same(t, mu, mu.Restored())
}

// A status that could not be written after the record said that a repair has succeeded still has what was repaired.
func TestWhatHadDriftedIsNotRestored(t *testing.T) {
	mu := &MachineUpdate{Spec: MachineUpdateSpec{Record: &UpdateRecord{Revision: 1, Status: MachineUpdateStatus{Phase: PhaseSucceeded}}}}
	mu.Status.Phase, mu.Status.Drift = PhaseVerifying, &DriftStatus{ObservedCheck: "now", Total: 1, Resources: []DriftedResource{{Kind: "File"}}}
	mu.Status.Conditions = []metav1.Condition{{Type: DriftedCondition, Status: metav1.ConditionTrue}, {Type: SucceededCondition}}
	got := mu.Restored().Status
	require.Equal(t, &DriftStatus{ObservedCheck: "now"}, got.Drift)
	require.Len(t, got.Conditions, 1)
	require.Len(t, mu.Status.Conditions, 2)
}

// That something had drifted is recorded: a move leaves the status behind, and the node is no more as it was applied for that.
func TestThatANodeHadDriftedIsRestored(t *testing.T) {
	mu := &MachineUpdate{Spec: MachineUpdateSpec{Record: &UpdateRecord{Revision: 1, Status: MachineUpdateStatus{Phase: PhaseSucceeded, Drift: &DriftStatus{Total: 1}}}}}
	for _, was := range []MachineUpdateStatus{
		{},
		{Phase: PhaseSucceeded, Drift: &DriftStatus{Repairs: 1}, Conditions: []metav1.Condition{{Type: DriftedCondition, Status: metav1.ConditionFalse}}},
	} {
		mu.Status = was
		got := mu.Restored().Status
		require.Equal(t, int32(1), got.Drift.Total)
		require.Zero(t, got.Drift.Repairs)
		require.Equal(t, DriftedCondition, got.Conditions[0].Type)
		require.Equal(t, metav1.ConditionTrue, got.Conditions[0].Status)
	}
}

func TestFormerMachineUIDs(t *testing.T) {
	mu := &MachineUpdate{}
	require.Empty(t, mu.FormerMachineUIDs("now"))
	mu.Spec.Record = &UpdateRecord{MachineUID: "two", FormerMachineUIDs: []types.UID{"one", "two", ""}}
	require.Equal(t, []types.UID{"one"}, mu.FormerMachineUIDs("two"), "it was not moved since")
	require.Equal(t, []types.UID{"two", "one"}, mu.FormerMachineUIDs("three"))
	require.Equal(t, []types.UID{"two"}, mu.FormerMachineUIDs("one"), "it was moved back")
	for i := range 2 * MaxFormerMachineUIDs {
		mu.Spec.Record.FormerMachineUIDs = append(mu.Spec.Record.FormerMachineUIDs, types.UID(strconv.Itoa(i)))
	}
	require.Len(t, mu.FormerMachineUIDs("three"), MaxFormerMachineUIDs)
}
