package slots

import (
	"testing"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
)

// recorded has only the record of an update say what its status said: it was moved here without that.
func recorded(mu *refitv1.MachineUpdate) {
	mu.Spec.Record = &refitv1.UpdateRecord{Revision: 1, Status: mu.Status}
	mu.Status = refitv1.MachineUpdateStatus{}
}

// TestSlotsOfAClusterThatWasMoved has updates ask for slots before those of others have their status again.
func TestSlotsOfAClusterThatWasMoved(t *testing.T) {
	for name, edits := range map[string][]editUpdate{"updating": {holds}, "failed": {holds, fails}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, atMost(1), pool(2)...)
			w.edit("w00", append(edits, recorded)...)
			w.lead(w.slots.Limits)
			require.Contains(t, w.take("w01"), "w00 (")
			w.freeze()
			w.edit("w00", func(mu *refitv1.MachineUpdate) { mu.Spec.Record = &refitv1.UpdateRecord{Revision: 2} })
			w.thaw()
			require.Empty(t, w.take("w01"))
		})
	}
}

// TestSlotsOfAClusterThatCameLater has a Machine come with a slot when the leader has read those of the namespace already.
func TestSlotsOfAClusterThatCameLater(t *testing.T) {
	w := newWorld(t, atMost(1), pool(2)...)
	require.Empty(t, w.take("w00"))
	w.edit("w00", lets)
	for _, obj := range with(worker("later"), holds, recorded, func(mu *refitv1.MachineUpdate) { mu.Labels = nil }) {
		w.put(obj)
	}
	require.Contains(t, w.take("w01"), "later (updating)")
}

// TestASlotThatWasNotTriedIsNotTaken has policies close between the question for a slot and its record.
func TestASlotThatWasNotTriedIsNotTaken(t *testing.T) {
	w := newWorld(t, atMost(1), pool(2)...)
	_, err := w.tryTake("w00", func(*refitv1.MachineUpdate) error { return changemanagement.ErrNotTried })
	require.ErrorIs(t, err, changemanagement.ErrNotTried)
	require.Empty(t, w.take("w01"), "it is free for another at once")
}
