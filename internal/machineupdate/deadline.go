package machineupdate

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
)

// noteHeld writes what holds an update back into its status, with its deadline. It reports whether it is told for the first time that it is near.
func noteHeld(s *refitv1.MachineUpdateStatus, d *changemanagement.Decision) (news bool) {
	s.HeldDigest = d.Digest()
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

// forgetAtEnd takes what holds an update back out of the status of one that has ended.
func forgetAtEnd(s *refitv1.MachineUpdateStatus) {
	if ended(s.Phase) {
		forgetHeld(s)
	}
}

// forgetHeld takes what holds an update back out of a status, and until when that may: nothing waits any more.
func forgetHeld(s *refitv1.MachineUpdateStatus) {
	s.HeldDigest = ""
	forgetDeadline(s)
}

func forgetDeadline(s *refitv1.MachineUpdateStatus) {
	s.Deadline = nil
	meta.RemoveStatusCondition(&s.Conditions, refitv1.DeadlineNearCondition)
}
