package machineupdate

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
)

// showsDeadline reports whether a MachineUpdate that is held back shows its deadline as it is.
func showsDeadline(d changemanagement.Decision, mu *refitv1.MachineUpdate) bool {
	c := meta.FindStatusCondition(mu.Status.Conditions, refitv1.DeadlineNearCondition)
	switch at := mu.Status.Deadline; {
	case (at == nil) != (d.Due == nil), at != nil && at.Unix() != d.Due.At.Unix():
		return false
	case !d.Near:
		return c == nil
	default:
		return c != nil && c.Message == conditionMessage(d.Due.String())
	}
}

// noteDeadline writes the deadline of an update that is held back into its status. It reports whether it is told for the first time that it is near.
func noteDeadline(s *refitv1.MachineUpdateStatus, d *changemanagement.Decision) (news bool) {
	told := meta.FindStatusCondition(s.Conditions, refitv1.DeadlineNearCondition) != nil
	if d.Due == nil {
		forgetDeadline(s)
		return false
	}
	if at := metav1.NewTime(d.Due.At); s.Deadline == nil || s.Deadline.Unix() != at.Unix() {
		s.Deadline = &at
	}
	if !d.Near {
		meta.RemoveStatusCondition(&s.Conditions, refitv1.DeadlineNearCondition)
		return false
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: refitv1.DeadlineNearCondition, Status: metav1.ConditionTrue, Reason: string(d.Due.Cause), Message: conditionMessage(d.Due.String()),
	})
	return !told
}

// forgetAtEnd takes the deadline out of the status of an update that has ended.
func forgetAtEnd(s *refitv1.MachineUpdateStatus) {
	if ended(s.Phase) {
		forgetDeadline(s)
	}
}

// forgetDeadline takes the deadline out of a status: nothing waits any more.
func forgetDeadline(s *refitv1.MachineUpdateStatus) {
	s.Deadline = nil
	meta.RemoveStatusCondition(&s.Conditions, refitv1.DeadlineNearCondition)
}
