package machineupdate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/drift"
	"github.com/capi-refit/refit/internal/machineupdate/flow"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/nodeobject"
	"github.com/capi-refit/refit/internal/policykind"
)

// replacedNode is why an update fails whose Node is not the one that it began with.
const replacedNode = "NodeReplaced"

// wait is something that must happen before an update can go on.
type wait struct {
	reason  string
	message string
	// retry is when to look again; retryDefault if 0.
	retry time.Duration
	// releases means that the node is released to somebody else, whatever was begun there, as soon as nothing runs on it any more.
	releases bool
	// fails is the reason with which the update fails for it; empty if that can end by itself.
	fails string
	// decision is what holds the update back, where a policy does, and also the reason for which it waits besides.
	decision *changemanagement.Decision
	also     string
	// delayed is set where a person has ended the update, and that waits.
	delayed *refitv1.DelayedEnd
}

// but returns what a node that is looked at while a policy holds its update back makes it wait for: the policy, first of all.
func (w *wait) but(also *wait) *wait {
	if w == nil {
		return also
	}
	out := *w
	out.message += "; and then: " + also.message
	out.also = also.reason
	out.retry = max(also.retry, retryDefault)
	return &out
}

// retrySilent is how long an update waits at most that has begun nothing, before it asks again what has not answered.
const retrySilent = 2 * time.Minute

// retryDefault is how long an update waits before it looks whether it can go on.
const retryDefault = 10 * time.Second

// enter begins a phase.
func (u *update) enter(ctx context.Context, phase refitv1.Phase, step, message string) error {
	return u.tell(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Reason, s.Step, s.Message = phase, "", step, message
	})
}

// waits is what stands in the update's way, or in its end's: a policy, if nothing else does.
func (u *update) waits() *wait {
	w := u.waitsFor
	switch {
	case abandonAsked(u.mu) && u.seen.Machine != flow.Leaving && u.seen.Machine != flow.Replaced:
		return u.abandoning()
	case w == nil:
		return u.closed
	case u.closed != nil && w.decision == nil && !u.started():
		return u.closed.but(w)
	default:
		return w
	}
}

// wait shows what the update waits for.
func (u *update) wait(ctx context.Context) (ctrl.Result, error) { //nolint:cyclop // a table: one reason to keep the node after the other
	w := u.waits()
	switch {
	case u.seen.Work == flow.UnderWay && u.seen.Machine == flow.Leaving:
		w = &wait{reason: w.reason, message: "the Machine is being deleted; what runs on its node ends first", retry: retryDrain}
	case u.seen.Work == flow.UnderWay:
		w = w.afterRun()
	case u.seen.Work == flow.Unknown:
		w = w.unknownRun()
	case u.seen.Work == flow.Unreleased && u.fails():
		w = u.notReleased(ctx, u.unreleased)
	case w.releases && !u.seen.Released && !u.freed():
		if atWork := u.mu.Status.AtWork(); len(atWork) > 0 {
			if w = w.whileUpdater(atWork[0], u.giveUpOffer()); w.reason == refitv1.ReasonWithdrawn {
				w.reason = refitv1.ReasonUpdater // a person has to end it
			}
		}
	}
	return u.show(ctx, w, u.seen.Released)
}

// lookAgain waits with a rollback that was asked for. The update shows that it has failed.
func (u *update) lookAgain(ctx context.Context) (ctrl.Result, error) {
	if u.seen.Machine == flow.Present {
		return u.waitsFor.again(), nil // the rollback has told why
	}
	return u.waitsFor.again(), u.noteRollback(ctx, "the rollback waits: "+u.waitsFor.message)
}

// again is when to look again.
func (w *wait) again() ctrl.Result { return ctrl.Result{RequeueAfter: cmp.Or(w.retry, retryDefault)} }

// show records what the update waits for, and whether refit has released the node.
func (u *update) show(ctx context.Context, w *wait, gone bool) (ctrl.Result, error) {
	news, near := u.waitedFor != w.reason, false
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Reason, s.Message = refitv1.PhaseWaiting, w.reason, w.message
		if gone {
			u.noteReleased(s)
		}
		s.HeldDigest, s.DelayedEnd = "", w.delayed
		if w.decision != nil {
			revokeAdmission(s) // nothing has started by it
			permitted(s, metav1.ConditionFalse, string(w.decision.Reason), w.decision.Message)
			near = noteHeld(s, w.decision)
		}
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	u.Reconciler.late.done(client.ObjectKeyFromObject(u.mu))
	if u.mu.Status.Admission == nil {
		u.Gate.Forget(u.mu)
	}
	if news {
		u.tellWait(w)
	}
	if near {
		u.event(corev1.EventTypeWarning, "ChangeDeadlineNear", "Wait", w.decision.Due.String())
	}
	return ctrl.Result{RequeueAfter: u.retryAfter(w)}, nil
}

// retryAfter returns when to look again. What is silent is asked less and less often as long as nothing was begun: many that are cost time
// of those that answer.
func (u *update) retryAfter(w *wait) time.Duration {
	reason := cmp.Or(w.also, w.reason)
	switch {
	case u.seen.Work == flow.Unreleased: // what keeps others off the node is to go soon
		return min(w.again().RequeueAfter, retryDefault)
	case reason != refitv1.ReasonUnreachable && reason != refitv1.ReasonWorkload:
		u.silent.Delete(client.ObjectKeyFromObject(u.mu))
		return w.again().RequeueAfter
	case u.mu.Status.ApplyingSince != nil || u.started() || u.mu.Status.Node != nil:
		return w.again().RequeueAfter
	}
	silent := u.waitedSince(&u.silent)
	if since := u.mu.Status.PhaseSince; since != nil && w.also == "" { // another process may have found it silent before
		silent = max(silent, u.Clock.Since(since.Time))
	}
	after := askSilent(silent)
	u.noteDark(w, after)
	return after
}

// askSilent is when to ask again what has been silent for so long.
func askSilent(since time.Duration) time.Duration {
	return min(max(since/4, retryDefault), retrySilent)
}

func (u *update) tellWait(w *wait) {
	if !u.atOnce {
		u.event(corev1.EventTypeWarning, "InPlaceUpdateWaiting", "Wait", w.message)
	}
	if w.decision != nil && len(w.decision.By) > 0 {
		u.event(corev1.EventTypeWarning, "ChangeManagementOverridden", "Override", w.decision.Message)
	}
}

// noteReleased records that refit has released the node. One that may be half changed keeps its slot, and its update what let it start. One that
// was watched, and has not said how that has ended, has still what nobody knows to work.
func (u *update) noteReleased(s *refitv1.MachineUpdateStatus) {
	switch {
	case s.ApplyingSince == nil:
		settle(s, settledReleased)
	case u.saidLast != nil:
		s.SoakingSince = nil
	}
}

// revokeAdmission takes back what let the work start. If the node was not changed by it, it has not started: it counts against no budget.
func revokeAdmission(s *refitv1.MachineUpdateStatus) {
	if a := s.Admission; a != nil && a.Reason != refitv1.NotMaterial && s.ApplyingSince == nil {
		s.Starts = slices.DeleteFunc(s.Starts, func(at metav1.Time) bool { return at.Equal(&a.AdmittedAt) })
	}
	s.Admission = nil
}

// endStart ends a start whose node is left as it was. It counts against budgets if the node was changed meanwhile, and nothing that comes
// later takes it back then: a withdrawal, say.
func endStart(s *refitv1.MachineUpdateStatus) {
	switch a := s.Admission; {
	case s.ApplyingSince == nil:
		revokeAdmission(s)
	case a != nil && a.Reason != refitv1.NotMaterial:
		s.Admission = nil
	}
}

// halfChanged reports whether the node of an update that ends without success may have a part of the specs.
func (u *update) halfChanged() bool {
	run := u.failedRun
	if run == nil && u.isWithdrawn() && u.saidLast != nil && u.saidLast.State == node.Failed {
		run = u.saidLast
	}
	return u.mu.Status.ApplyingSince != nil && !u.replaced && (run == nil || !run.RolledBack || len(u.mu.Status.Updaters) > 0)
}

// fail ends the update, whose node is released, until a person asks for another try or the desired specs change. It keeps its slot, so that what made
// it fail does not walk through the fleet; and a node that may be half changed stays cordoned.
func (u *update) fail(ctx context.Context, reason, message string) (ctrl.Result, error) {
	changed := u.halfChanged()
	if d := u.mu.Status.Drain; changed && d != nil && d.Cordoned {
		message += "; the node stays cordoned, since it may be half changed"
	}
	message += u.byUpdaters() + u.waysOn(reason)
	u.noteRun(u.runAtEnd())
	at := u.now()
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Reason, s.Message, s.FinishedAt = refitv1.PhaseFailed, reason, message, &at
		u.recordFailure(s, changed)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	u.Gate.Forget(u.mu)
	u.lost.Delete(client.ObjectKeyFromObject(u.mu))
	return ctrl.Result{}, nil
}

// recordFailure records what a failed update leaves behind: whether the node may be half changed, and what was acted upon.
func (u *update) recordFailure(s *refitv1.MachineUpdateStatus, changed bool) {
	s.ObservedDigest, s.ObservedRetry = u.mu.Spec.Digest, u.mu.RetryRequest()
	if u.failedRun != nil {
		s.FailedToken = u.failedRun.Token
	}
	if changed || u.replaced {
		s.AppliedDigest = "" // the node no longer shows it, or is another
	}
	how := settledHalfChanged
	if !changed {
		how = settledUnchanged
	}
	settle(s, how)
}

// waysOn returns how a person goes on with an update that has failed.
func (u *update) waysOn(reason string) string {
	if reason == refitv1.ReasonWithdrawn {
		return fmt.Sprintf("; to have the node as the Machine's specs say, delete the Machine, or change the specs where they come from so that Cluster API asks again; "+
			"if it asks for the same specs: refit retry -n %[1]s %[2]s; to acknowledge it and free its slot: refit abandon -n %[1]s %[2]s", u.mu.Namespace, u.mu.Name)
	}
	return fmt.Sprintf("; when the cause is gone: refit retry -n %[1]s %[2]s; to free its slot without that: refit abandon -n %[1]s %[2]s", u.mu.Namespace, u.mu.Name) + u.rollbackOffer()
}

// succeed records that the update has been made.
func (u *update) succeed(ctx context.Context) (ctrl.Result, error) {
	changes := u.ran.Changes
	for _, c := range nodeChanges(u.mu.Status.Changes) {
		changes = append(slices.Clip(changes), node.Change{Ref: node.Ref{Kind: nodeobject.Kind, Name: c.Name}})
	}
	message := fmt.Sprintf("the node shows what is desired: %s changed, actions: %s", changed(changes), actionsOf(u.mu.Status.Actions))
	now := metav1.NewTime(u.Clock.Now())
	news := !drift.Known(u.mu)
	u.noteRun(u.ran)
	var f *drift.Finding
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		f = u.noteVerified(s)
		s.Phase, s.Reason, s.Step, s.Message, s.Notes, s.FinishedAt = refitv1.PhaseSucceeded, "", "", message, u.notes, &now
		s.LastSucceededAt, s.AppliedDigest = &now, ""
		s.WorstAction = cmp.Or(s.WorstAction, string(disruption.None))
		s.NodeRecords = s.NodeRecords[:min(len(s.NodeRecords), 1)] // the Node was seen to have it
		u.outdoneRollback(s)
		settle(s, settledDone)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	u.lost.Delete(client.ObjectKeyFromObject(u.mu))
	u.tellDrift(news && f.Drifted(), f)
	return ctrl.Result{}, nil
}

// event tells about the update at its Machine, where people look first.
func (u *update) event(kind, reason, action, message string) {
	if u.regarding == nil {
		return
	}
	u.Recorder.Eventf(u.regarding, u.mu, kind, reason, action, "%s", policykind.Note(message))
}
