package machineupdate

import (
	"context"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/machineupdate/flow"
)

// tellEvery is how old what a status shows may be while an update goes on, and while the node does not take longer to answer.
const tellEvery = 2 * time.Second

// tell changes what the status shows of an update that goes on. It is written with what is written next, or at the end of the reconciliation; by itself
// only if nothing was for a while. So it is for what is found out again after a crash, and for what nothing is done on before it is written.
func (u *update) tell(ctx context.Context, change func(*refitv1.MachineUpdateStatus)) error {
	if u.Clock.Since(u.writtenAt) >= tellEvery {
		return u.set(ctx, change)
	}
	if u.written == nil {
		u.written = u.mu.Status.DeepCopy()
	}
	was := u.mu.Status
	change(&u.mu.Status)
	fit(&u.mu.Status)
	u.notePhase(&was)
	u.follows(ctx, was.Phase)
	return nil
}

// told writes what was told and is not written yet.
func (u *update) told(ctx context.Context) error {
	if u.written == nil {
		return nil
	}
	return u.set(ctx, func(*refitv1.MachineUpdateStatus) {})
}

// forgetDelay has the status no longer tell that an end is delayed when who had asked for it has taken that back.
func (u *update) forgetDelay() {
	if !u.freed() {
		u.mu.Status.DelayedEnd = nil
	}
}

// set changes the status, and writes it. It fails with a conflict when somebody else has written in between: another leader, say.
func (u *update) set(ctx context.Context, change func(*refitv1.MachineUpdateStatus)) error {
	was := u.mu.Status.DeepCopy()
	if u.written == nil {
		u.written = was
	}
	before := u.written
	change(&u.mu.Status)
	forgetAtEnd(&u.mu.Status)
	u.forgetDelay()
	fit(&u.mu.Status)
	u.notePhase(was)
	u.keepStanding(before)
	ends := u.ends(was)
	recorded, err := u.record(ctx)
	if err != nil {
		u.keepSpans()
		return err
	}
	st := &u.mu.Status
	u.setConditions(st)
	if reflect.DeepEqual(before, st) {
		u.written = nil
		u.believePlan()
		return nil
	}
	u.follows(ctx, was.Phase)
	err = u.Client.Status().Update(ctx, u.mu)
	if u.looksOnly && recorded && apierrors.IsConflict(err) {
		err = u.complete(ctx, err)
	}
	if err != nil {
		u.keepSpans()
		return u.notWritten(err, recorded)
	}
	u.written, u.writtenAt = nil, u.Clock.Now()
	u.exportSpans()
	u.believePlan()
	if before.Phase != st.Phase || before.Reason != st.Reason {
		ctrl.LoggerFrom(ctx).Info("The update is in another phase", "phase", st.Phase, "reason", st.Reason, "message", st.Message)
	}
	if ends {
		u.tellEnd(ctx)
	}
	return nil
}

// believePlan remembers by which policies the plan was made that the status has: only what is written is believed when a cache shows it.
func (u *update) believePlan() {
	if u.planned != nil {
		u.plannedBy.Store(client.ObjectKeyFromObject(u.mu), *u.planned)
		u.planned = nil
	}
}

// notWritten returns the error of a status that was not written, though what is to last may have been.
func (u *update) notWritten(err error, recorded bool) error {
	err = fmt.Errorf("write the status of MachineUpdate %s/%s: %w", u.mu.Namespace, u.mu.Name, err)
	if recorded {
		return &halfWrittenError{err}
	}
	return err
}

// follows tells of a change of phase that there is not. What is shown is true all the same, so that the update goes on.
func (u *update) follows(ctx context.Context, from refitv1.Phase) {
	to := u.mu.Status.Phase
	if u.enters != nil {
		u.enters(from, to)
	}
	if flow.Permits(from, to) {
		return
	}
	ctrl.LoggerFrom(ctx).Error(nil, "A phase follows another that it must not follow; please report that", "from", from, "to", to)
	if u.misstep != nil {
		u.misstep(from, to)
	}
}
