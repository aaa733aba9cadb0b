package machineupdate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/rollback"
	"github.com/capi-refit/refit/updaters"
)

// retryRollback is how soon what was written is looked at again: an owner whose cache is behind may have written over it.
const retryRollback = time.Second

// rollbackAsked reports whether somebody has asked for a rollback that has not ended.
func rollbackAsked(mu *refitv1.MachineUpdate) bool {
	request, last := mu.RollbackRequest(), mu.Status.Rollback
	return request != "" && (last == nil || last.Request != request || !last.State.Ended())
}

// rollBack writes into the Machine's objects what its owner wants now. It returns true when the update goes on: with what was written,
// or as before.
//
// That it is writing is recorded first, and nothing else is done until it has ended, so that whoever leads next goes on with it. It
// has ended when the objects are found as they are wanted.
func (u *update) rollBack(ctx context.Context) (ctrl.Result, bool, error) {
	result, goesOn, err := u.writeRollback(ctx, u.regarding)
	u.seen.RolledBack = goesOn && u.seen.Waits == ""
	return result, goesOn, err
}

func (u *update) writeRollback(ctx context.Context, machine *clusterv1.Machine) (ctrl.Result, bool, error) { //nolint:cyclop // one step after the other
	switch {
	case !asked(machine):
		return u.refuseRollback(ctx, "Cluster API does not have the Machine updated in place now, so that its owner is heard: change the template")
	case (u.mu.Status.Phase == refitv1.PhaseApplying || u.mu.Status.Phase == refitv1.PhaseVerifying) && len(u.mu.Status.AtWork()) == 0:
		return ctrl.Result{}, true, nil // what runs on the node ends first
	}
	r := &rollback.Rollback{Writer: u.Client, Live: u.Live}
	plan, err := r.Plan(ctx, client.ObjectKeyFromObject(u.mu))
	if err == nil && len(plan.Change) == 0 {
		return u.rolledBack(ctx, machine, plan)
	}
	if err == nil {
		err = u.coverRollback(ctx, machine, plan)
	}
	if err == nil {
		err = u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
			s.Rollback = u.rollbackStatus(refitv1.RollbackWriting, "writing what "+plan.Owner+" wants into the Machine's objects")
			s.Rollback.Owner = plan.Owner
			if plan.Warning != "" {
				s.Rollback.Warning = plan.Warning // of what was written already it was told before
			}
		})
	}
	if err == nil {
		err = r.Write(ctx, plan)
	}
	var refused *rollback.RefusedError
	if errors.As(err, &refused) {
		return u.refuseRollback(ctx, refused.Reason)
	}
	if err != nil {
		return u.postponeRollback(ctx, err)
	}
	return ctrl.Result{RequeueAfter: retryRollback}, false, nil
}

// postponeRollback records why a rollback can't go on now. It is tried again.
func (u *update) postponeRollback(ctx context.Context, err error) (ctrl.Result, bool, error) {
	if ctx.Err() != nil || apierrors.IsConflict(err) || halfWritten(err) {
		return ctrl.Result{}, false, err // somebody else has written: it is looked at again at once
	}
	ctrl.LoggerFrom(ctx).Error(err, "The rollback can't go on; it is tried again")
	w := &wait{reason: refitv1.ReasonBlocked, message: "the rollback can't go on and is tried again: " + err.Error()}
	u.blockOn(w)
	return ctrl.Result{}, true, u.noteRollback(ctx, w.message)
}

// noteRollback records what a rollback waits for, and tells it when it is the first that is told of it.
func (u *update) noteRollback(ctx context.Context, why string) error {
	next := u.rollbackStatus(refitv1.RollbackPending, policykind.Note(why))
	last := u.mu.Status.Rollback
	if u.rollbackBegun() {
		next.State = refitv1.RollbackWriting
	}
	news := last == nil || last.Request != next.Request || last.State != next.State
	if err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) { s.Rollback = next }); err != nil {
		return err
	}
	if news {
		u.event(corev1.EventTypeWarning, "InPlaceUpdateRollbackWaits", "RollBack", next.Message+requestedBy(next.Request))
	}
	return nil
}

// rollbackBegun reports whether some of the objects may have been written, be it for an earlier request.
func (u *update) rollbackBegun() bool {
	last := u.mu.Status.Rollback
	return last != nil && last.State == refitv1.RollbackWriting
}

// rollbackStatus is that of the rollback that is asked for.
func (u *update) rollbackStatus(state refitv1.RollbackState, message string) *refitv1.RollbackStatus {
	s := &refitv1.RollbackStatus{Request: u.mu.RollbackRequest(), State: state, Message: message, StartedAt: u.now()}
	last := u.mu.Status.Rollback
	if last != nil && last.Request == s.Request {
		s.StartedAt, s.Owner = last.StartedAt, last.Owner
	}
	// What is to be looked after stays so for other requests about the same update.
	if done := u.mu.Status.LastSucceededAt; last != nil && (done == nil || done.Before(&last.StartedAt)) {
		s.Warning = last.Warning
	}
	if state.Ended() {
		at := u.now()
		s.FinishedAt = &at
	}
	return s
}

// coverRollback returns a *rollback.RefusedError if not all that differs can be brought to the node in place, as Cluster API asks
// before an update: what was written and not brought to the node would be taken for done.
func (u *update) coverRollback(ctx context.Context, machine *clusterv1.Machine, plan *rollback.Plan) error {
	w, err := u.selectRules(ctx, machine)
	if err != nil {
		return err
	}
	if w != nil {
		return &rollback.RefusedError{Reason: w.message}
	}
	decision, err := u.selected.Updaters.Decide(ctx, plan.Change)
	if err != nil {
		return &rollback.RefusedError{Reason: fmt.Sprintf("what %s wants can't be compared with what the Machine has: %v", plan.Owner, err)}
	}
	if decision.InPlace() {
		return nil
	}
	left := uncovered(decision)
	if u.Judge != nil {
		request, err := u.canRollBack(ctx, plan.Change)
		if err != nil {
			return err
		}
		if left, err = u.Judge.Left(ctx, request); err != nil || left == "" {
			return err
		}
	}
	return &rollback.RefusedError{Reason: fmt.Sprintf("what %s wants can't be brought to the node in place (%s): delete the Machine, and Cluster API makes a new one",
		plan.Owner, left)}
}

// uncovered names the first field that can't be updated in place, and says why.
func uncovered(d updaters.Decision) string {
	var first string
	more := -1
	for _, v := range d {
		if !v.Covered() {
			if more++; first == "" {
				first = fmt.Sprintf("%s of the %s: %s", v.Field, v.Field.Object, v.Reason)
			}
		}
	}
	if more > 0 {
		first += fmt.Sprintf("; and %d more", more)
	}
	return first
}

// rolledBack ends a rollback whose objects are as they are wanted. The update goes on with them; Cluster API asks for the same when it
// calls next.
func (u *update) rolledBack(ctx context.Context, machine *clusterv1.Machine, plan *rollback.Plan) (ctrl.Result, bool, error) {
	specs, err := u.readSpecs(ctx, machine)
	if err != nil {
		return u.postponeRollback(ctx, err)
	}
	if !u.rollbackBegun() && specs.digest == u.mu.Spec.Digest {
		return u.refuseRollback(ctx, fmt.Sprintf("%s wants what the Machine has already: have it point to the template that it should have, and ask again", plan.Owner))
	}
	if err := u.askFor(ctx, specs.digest); err != nil {
		return u.postponeRollback(ctx, err)
	}
	message := "the Machine's objects are as " + plan.Owner + " wants them now" + requestedBy(u.mu.RollbackRequest())
	next := u.rollbackStatus(refitv1.RollbackWritten, message)
	next.Owner = plan.Owner
	if next.Warning != "" {
		next.Message += "; " + next.Warning
	}
	err = u.set(ctx, func(s *refitv1.MachineUpdateStatus) { s.Rollback = next })
	if err != nil {
		return ctrl.Result{}, false, err
	}
	u.event(corev1.EventTypeNormal, "InPlaceUpdateRolledBack", "RollBack", next.Message)
	return ctrl.Result{}, !finished(u.mu), nil
}

// askFor asks the MachineUpdate for the specs of a digest.
func (u *update) askFor(ctx context.Context, digest string) error {
	if u.mu.Spec.Digest == digest {
		return nil
	}
	changed := u.mu.DeepCopy()
	changed.Spec.Digest = digest
	if err := u.Client.Patch(ctx, changed, client.MergeFromWithOptions(u.mu, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("ask MachineUpdate %s for other specs: %w", client.ObjectKeyFromObject(u.mu), err)
	}
	u.mu.Spec, u.mu.ResourceVersion, u.mu.Generation = changed.Spec, changed.ResourceVersion, changed.Generation
	return nil
}

// refuseRollback records why nothing more is written. An update that has failed stays so.
func (u *update) refuseRollback(ctx context.Context, reason string) (ctrl.Result, bool, error) {
	message := "the rollback was refused: " + reason
	if u.rollbackBegun() {
		message += "; some of the Machine's objects have been written already: when the cause is gone, ask again, and the others are written"
	}
	message = policykind.Note(message)
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) { s.Rollback = u.rollbackStatus(refitv1.RollbackRefused, message) })
	if err != nil {
		return ctrl.Result{}, false, err
	}
	u.event(corev1.EventTypeWarning, "InPlaceUpdateNotRolledBack", "RollBack", message+requestedBy(u.mu.RollbackRequest()))
	return ctrl.Result{}, !finished(u.mu), nil
}

// outdoneRollback ends a rollback that nobody has begun when the update has succeeded: a later one is another matter.
func (u *update) outdoneRollback(s *refitv1.MachineUpdateStatus) {
	if rollbackAsked(u.mu) {
		s.Rollback = u.rollbackStatus(refitv1.RollbackRefused, "the update has succeeded before it could be rolled back, so that Cluster API hears the owner again: change the template")
	}
}

// requestedBy returns who has asked for a rollback, as the command writes it: a time, and a name.
func requestedBy(request string) string {
	_, who, _ := strings.Cut(request, " ")
	if who == "" {
		return ""
	}
	return "; asked for by " + policykind.Note(who)
}

// rollbackOffer returns how a failed update is taken back, where that can be: Cluster API hears its owner no more.
func (u *update) rollbackOffer() string {
	if u.regarding == nil || !asked(u.regarding) {
		return ""
	}
	owner := metav1.GetControllerOf(u.regarding)
	if owner == nil {
		return ""
	}
	kind := owner.Kind
	switch kind {
	case "MachineSet":
		kind = "MachineDeployment"
	case "KubeadmControlPlane":
	default:
		return ""
	}
	return fmt.Sprintf("; to take the change back: put its %s back as it was, and then: refit rollback -n %s %s", kind, u.mu.Namespace, u.mu.Name)
}
