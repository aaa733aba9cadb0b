package machineupdate

import (
	"k8s.io/apimachinery/pkg/api/meta"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// settlement is how an update is done with its node, for good or for now.
type settlement int

const (
	// settledReleased: the update waits, and has changed nothing.
	settledReleased settlement = iota
	// settledWithdrawn: nobody asks for it any more, and it has changed nothing.
	settledWithdrawn
	// settledUnchanged: it has failed, and the node is as it was. It keeps its slot.
	settledUnchanged
	// settledHalfChanged: it has failed, and the node may have a part of the specs. It keeps what it has.
	settledHalfChanged
	// settledGivenUp: a person has abandoned it, or its Machine goes.
	settledGivenUp
	// settledDone: it has succeeded.
	settledDone
)

// settle takes out of a status what an update that is done with its node does not keep of it.
func settle(s *refitv1.MachineUpdateStatus, how settlement) {
	s.RebootingSince, s.SoakingSince = nil, nil
	switch how {
	case settledHalfChanged:
		return
	case settledReleased, settledWithdrawn:
		revokeAdmission(s)
	case settledUnchanged:
		endStart(s)
	case settledGivenUp:
		s.Admission, s.Updaters = nil, nil
	case settledDone: // what let it start tells how long it has taken
	}
	s.Node, s.Drain, s.ApplyingSince = nil, nil, nil
	if how != settledUnchanged {
		s.Slot = nil
	}
	if how == settledWithdrawn {
		s.Repair, s.Plan, s.Attempts = nil, nil, 0
		s.Changes, s.Actions, s.WorstAction, s.Notes, s.StepsDone, s.StepsTotal = nil, nil, "", nil, 0, 0
		meta.RemoveStatusCondition(&s.Conditions, refitv1.PermittedCondition)
	}
}
