package machineupdate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drain"
	"github.com/capi-refit/refit/internal/lease"
)

// notAbandoned is why an update that is being abandoned keeps its slot.
const notAbandoned = "; it is not abandoned yet, and keeps its slot: " + notReleased

// abandonsLater is the step of an update that has failed and is not abandoned yet.
const abandonsLater = "abandon: release the node"

// beforeAbandon returns what an update told before it told why it is not abandoned yet.
func beforeAbandon(s *refitv1.MachineUpdateStatus) string {
	if d := s.DelayedEnd; d != nil && d.Request == refitv1.EndAbandon {
		return d.Message
	}
	before, _, _ := strings.Cut(s.Message, notAbandoned) // an earlier version of refit has kept it nowhere else
	return before
}

// showsDelay reports whether an update that has failed shows as its step that it is not abandoned yet, also as an earlier version of refit has shown it.
func showsDelay(s *refitv1.MachineUpdateStatus) bool {
	return s.DelayedEnd != nil || strings.HasPrefix(s.Step, abandonsLater)
}

// abandoning returns what an update waits for that is being abandoned.
func (u *update) abandoning() *wait {
	w := &wait{reason: cmp.Or(u.mu.Status.Reason, refitv1.ReasonUpdater), message: "the update is being abandoned"}
	if u.unreleased != nil {
		before := beforeAbandon(&u.mu.Status)
		w.message = before + notAbandoned + u.unreleased.Error()
		w.delayed = &refitv1.DelayedEnd{Request: refitv1.EndAbandon, Reason: u.unreleasedReason(), Message: before}
	}
	return w
}

// unreleasedReason returns the reason for which the node can't be released.
func (u *update) unreleasedReason() string {
	var held *lease.HeldError
	switch {
	case errors.As(u.unreleased, &held):
		return refitv1.ReasonLease
	case isAny(u.unreleased, drain.ErrOtherOwner):
		return refitv1.ReasonNode
	default:
		return refitv1.ReasonWorkload
	}
}

// delays reports whether an update shows already that its end waits, and for which reason. The message may be another each time, and to write
// each would be to be woken at once.
func (u *update) delays(d refitv1.DelayedEnd) bool {
	shown := u.mu.Status.DelayedEnd
	return shown != nil && shown.Request == d.Request && shown.Reason == d.Reason
}

// abandonLater shows why an update that has failed can't be abandoned yet, and tells it.
func (u *update) abandonLater(ctx context.Context) (ctrl.Result, error) {
	w := u.abandoning()
	if u.delays(*w.delayed) {
		return w.again(), nil
	}
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Step, s.Message, s.DelayedEnd = abandonsLater, w.message, w.delayed
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	u.event(corev1.EventTypeWarning, "InPlaceUpdateNotAbandoned", "Abandon", "the update is not abandoned yet: "+notReleased+u.unreleased.Error())
	return w.again(), nil
}

// abandon gives an update up: nothing of refit's stays, and its slot is free. One that has failed stays so, and one that waits fails.
func (u *update) abandon(ctx context.Context) (ctrl.Result, error) {
	waits, began := u.mu.Status.Phase != refitv1.PhaseFailed, "nothing was changed on the node: "
	switch atWork := u.mu.Status.AtWork(); {
	case len(atWork) > 0:
		began = fmt.Sprintf("the machine may be half changed, and what UpdaterRegistration %s has begun is not called to its end any more: ", strings.Join(atWork, ", "))
	case u.mu.Status.ApplyingSince != nil:
		began = "the node may be half changed: "
	}
	at := u.now()
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		if !waits && showsDelay(s) {
			s.Step = ""
		}
		s.Message, s.DelayedEnd = beforeAbandon(s), nil
		s.ObservedAbandon = u.mu.AbandonRequest()
		settle(s, settledGivenUp)
		if waits {
			s.Phase, s.Reason, s.FinishedAt, s.AppliedDigest = refitv1.PhaseFailed, abandoned, &at, ""
			s.Message = "the update has not ended, and " + began + s.Message
		}
		s.Message += "; it was abandoned: its slot is free, and nothing of refit is on the node"
	})
	if err == nil && !waits { // else that ends it, and is told then
		u.tellAbandoned()
	}
	return ctrl.Result{}, err
}

func (u *update) tellAbandoned() {
	u.event(corev1.EventTypeNormal, "InPlaceUpdateAbandoned", "Abandon", "the failed update was abandoned")
}
