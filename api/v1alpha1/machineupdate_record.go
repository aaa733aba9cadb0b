package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MaxFormerMachineUIDs is how many UIDs a record remembers that its Machine had before.
const MaxFormerMachineUIDs = 8

// UpdateRecord is what may not be lost of a status: what has begun, what has ended, and what refit has put on the node. Copies of objects
// without their status, as clusterctl move and backups make them, take it along.
type UpdateRecord struct {
	// revision counts the writes of the record. A status of a lower one is behind it.
	// +required
	Revision int64 `json:"revision"`

	// machineUID is the uid that the Machine had when the record was written.
	// +optional
	MachineUID types.UID `json:"machineUID,omitempty"`

	// formerMachineUIDs are those that it had before, in management clusters from which it was moved, the latest first. Its node may know
	// it by one of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	FormerMachineUIDs []types.UID `json:"formerMachineUIDs,omitempty"`

	// status is the status without what only tells how far the work has come.
	// +optional
	Status MachineUpdateStatus `json:"status,omitzero"`
}

// Behind reports whether the status lacks what the record has: the object was made again without its status, or the status could not be
// written after the record.
func (mu *MachineUpdate) Behind() bool {
	return mu.Spec.Record != nil && mu.Status.RecordRevision < mu.Spec.Record.Revision
}

// Restored returns the MachineUpdate with a status that has what the record has: itself, or a copy if its status is behind. Who decides by
// the status of a MachineUpdate decides by this one. The copy is still behind, until its status is written.
func (mu *MachineUpdate) Restored() *MachineUpdate {
	if !mu.Behind() {
		return mu
	}
	out := mu.DeepCopy()
	was, s := mu.Status.DeepCopy(), &out.Status
	*s = *mu.Spec.Record.Status.DeepCopy()
	drifted := s.Drift != nil && s.Drift.Total > 0
	s.RecordRevision, s.Conditions, s.Instance, s.Address = was.RecordRevision, was.Conditions, was.Instance, was.Address
	s.Token = max(s.Token, was.Token)
	if was.Drift != nil {
		repairs := int32(0)
		if s.Drift != nil {
			repairs = s.Drift.Repairs
		}
		s.Drift = was.Drift
		s.Drift.Repairs = repairs
	}
	switch {
	case s.Phase != PhaseSucceeded:
	case drifted:
		s.Drift.Total = max(s.Drift.Total, mu.Spec.Record.Status.Drift.Total)
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: DriftedCondition, Status: metav1.ConditionTrue, Reason: DriftFound, ObservedGeneration: mu.Generation,
			Message: "the node no longer showed what was applied when it was compared last; in what is found when it is compared again",
		})
	case was.Phase != PhaseSucceeded: // what had drifted before says nothing about the node after it
		meta.RemoveStatusCondition(&s.Conditions, DriftedCondition)
		if s.Drift != nil {
			s.Drift.Resources, s.Drift.Total, s.Drift.ComparedAt = nil, 0, nil
		}
	}
	if s.Phase == "" {
		s.Phase, s.Message = PhasePending, "the update goes on from where its record says that it was"
	}
	return out
}

// FormerMachineUIDs are the UIDs, other than current, that the Machine had when refit worked on its node, the latest first.
func (mu *MachineUpdate) FormerMachineUIDs(current types.UID) []types.UID {
	r := mu.Spec.Record
	if r == nil {
		return nil
	}
	var former []types.UID
	for _, uid := range append([]types.UID{r.MachineUID}, r.FormerMachineUIDs...) {
		if uid != "" && uid != current && !slices.Contains(former, uid) && len(former) < MaxFormerMachineUIDs {
			former = append(former, uid)
		}
	}
	return former
}
