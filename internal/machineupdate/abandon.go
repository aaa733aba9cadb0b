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

// abandonsLater is what the step begins with that an update shows which is being abandoned and keeps its slot for now.
const abandonsLater = "abandon: release the node"

// notAbandoned is why an update that is being abandoned keeps its slot.
const notAbandoned = "; it is not abandoned yet, and keeps its slot: " + notReleased

// beforeAbandon returns the message of an update without why it is not abandoned yet.
func beforeAbandon(message string) string {
	before, _, _ := strings.Cut(message, notAbandoned)
	return before
}

// abandoning returns what an update waits for that is being abandoned.
func (u *update) abandoning() *wait {
	w := &wait{reason: cmp.Or(u.mu.Status.Reason, refitv1.ReasonUpdater), message: "the update is being abandoned"}
	if u.unreleased != nil {
		w.message = beforeAbandon(u.mu.Status.Message) + notAbandoned + u.unreleased.Error()
	}
	return w
}

// unreleasedStep returns the step that an update shows whose node can't be released: another one for each kind of reason. The message may be
// another each time, and to write each would be to be woken at once.
func (u *update) unreleasedStep(step string) string {
	reason := refitv1.ReasonWorkload
	var held *lease.HeldError
	switch {
	case errors.As(u.unreleased, &held):
		reason = refitv1.ReasonLease
	case isAny(u.unreleased, drain.ErrOtherOwner):
		reason = refitv1.ReasonNode
	}
	return step + " (" + reason + ")"
}

// abandonLater shows why an update that has failed can't be abandoned yet, and tells it.
func (u *update) abandonLater(ctx context.Context) (ctrl.Result, error) {
	w, step := u.abandoning(), u.unreleasedStep(abandonsLater)
	if u.mu.Status.Step == step {
		return w.again(), nil
	}
	if err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) { s.Step, s.Message = step, w.message }); err != nil {
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
		s.Message = beforeAbandon(s.Message)
		s.ObservedAbandon = u.mu.AbandonRequest()
		s.Node, s.Slot, s.Drain, s.ApplyingSince, s.SoakingSince, s.Admission, s.Updaters = nil, nil, nil, nil, nil, nil, nil
		if strings.HasPrefix(s.Step, abandonsLater) {
			s.Step = ""
		}
		if waits {
			s.Phase, s.Reason, s.FinishedAt, s.RebootingSince, s.AppliedDigest = refitv1.PhaseFailed, abandoned, &at, nil, ""
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
