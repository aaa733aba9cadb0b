package machineupdate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/machineupdate/flow"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/registered"
)

// Registered has the extensions that are updaters beside refit's own.
type Registered interface {
	// For returns those for a machine, in their order.
	For(ctx context.Context, s registered.Subject) ([]*registered.Remote, error)
}

// Judge judges changes as the hooks do, with the extensions that are updaters.
type Judge interface {
	// Left returns the first field of a CanUpdateMachineRequest that can't be made in place, and why; empty if all can.
	Left(ctx context.Context, request []byte) (string, error)
}

// retryRegistered is when an updater is asked again that could not be. The node's lease is kept at least that often.
const retryRegistered = 10 * time.Second

// findRegistered finds the updaters that are called, which are those that are registered for the Machine: what a hook has answered is not known any
// more. A repair brings back what refit itself has applied, and calls none.
func (u *update) findRegistered(ctx context.Context) *wait {
	if u.Registered == nil || u.mu.Status.Repair != nil {
		return nil
	}
	var err error
	u.registered, err = u.Registered.For(ctx, registered.Subject{
		Subject: inplace.SubjectOf(u.regarding), Infrastructure: u.regarding.Spec.InfrastructureRef.Kind,
	})
	if err != nil {
		return &wait{reason: refitv1.ReasonUpdater, message: "which registered updaters are to be called is not known: " + err.Error()}
	}
	if len(u.registered) > maxUpdaters {
		return &wait{reason: refitv1.ReasonUpdater, message: fmt.Sprintf(
			"%d UpdaterRegistrations select the Machine, and %d may at most; have their selectors be narrower", len(u.registered), maxUpdaters)}
	}
	return nil
}

// planRegistered adds to what the node says that is to be done what updaters take on it that are not done.
func (u *update) planRegistered(plan *node.Plan) {
	for _, r := range u.registered {
		if r.Drains() && !u.runOfRegistered(r.Name()).Done {
			plan.Actions = disruption.Merge(plan.Actions, []disruption.Action{{Type: disruption.Drain}})
			return
		}
	}
}

// runOfRegistered returns how far an updater is.
func (u *update) runOfRegistered(name string) refitv1.UpdaterRun {
	for _, run := range u.mu.Status.Updaters {
		if run.Name == name {
			return run
		}
	}
	return refitv1.UpdaterRun{Name: name}
}

// isDue reports whether an updater is to be called that has not said that it is done.
func (u *update) isDue() bool {
	return slices.ContainsFunc(u.registered, func(r *registered.Remote) bool { return !u.runOfRegistered(r.Name()).Done })
}

// updatersOf is how far the updaters are that were called.
func updatersOf(s *refitv1.MachineUpdateStatus) flow.Updaters {
	switch {
	case len(s.AtWork()) > 0:
		return flow.AtWork
	case len(s.Updaters) > 0:
		return flow.Done
	default:
		return ""
	}
}

// unfinished are the updaters that were at work when other specs, or another try, were asked for. They are called for these, be they registered or
// not: what they have begun nobody else ends.
func unfinished(runs []refitv1.UpdaterRun) []refitv1.UpdaterRun {
	var out []refitv1.UpdaterRun
	for _, run := range runs {
		if !run.Done {
			run.AskAgainAt = nil
			out = append(out, run)
		}
	}
	return out
}

// callUpdater calls the updater whose turn it is. When it is done the node is looked at again, since it may be another by that.
func (u *update) callUpdater(ctx context.Context) (ctrl.Result, bool, error) {
	w, again, err := u.callNext(ctx)
	switch {
	case err != nil:
		return ctrl.Result{}, false, err
	case w != nil:
		u.blockOn(w)
	case again > 0:
		return ctrl.Result{RequeueAfter: again}, false, nil
	default:
		u.forgetNode()
	}
	return ctrl.Result{}, true, nil
}

// forgetNode forgets what the node has said.
func (u *update) forgetNode() {
	u.disconnect()
	s := &u.seen
	s.Connected, s.Last, s.Busy, s.Plan, s.Noted, s.Admitted, s.Allowed, s.Spared, s.Works = false, "", false, flow.Plan{}, false, false, false, false, false
	s.Due = u.isDue()
}

// callNext calls one updater: one that is at work before others begin. It returns what it waits for, or when to ask again; neither when it is done.
// What an updater has said is recorded before anything else is done, so that whoever goes on after a crash asks the one whose turn it is.
func (u *update) callNext(ctx context.Context) (*wait, time.Duration, error) {
	if r := u.nextRegistered(); r != nil {
		return u.callRegistered(ctx, r, u.runOfRegistered(r.Name()))
	}
	atWork := u.mu.Status.AtWork()
	if len(atWork) == 0 {
		return nil, 0, nil
	}
	why := "it has begun its part and not said that it is done, and it is not registered for the Machine any more: register it again"
	if u.Registered == nil {
		why = "it has begun its part and not said that it is done, and refit runs without --registered-updaters: start it with that"
	}
	return u.updaterWaits(atWork[0], why), 0, nil
}

// nextRegistered returns the updater whose turn it is, or nil.
func (u *update) nextRegistered() *registered.Remote {
	atWork := u.mu.Status.AtWork()
	for _, r := range u.registered {
		if slices.Contains(atWork, r.Name()) || len(atWork) == 0 && !u.runOfRegistered(r.Name()).Done {
			return r
		}
	}
	return nil
}

// noteWorks has the node note what of it works, before an updater is called for the first time. The node keeps that over crashes and boots until its
// own part has begun, which it begins by looking whether all of that still works: what an updater has broken is found then, and its name told.
func (u *update) noteWorks(ctx context.Context) (*wait, error) {
	r := u.nextRegistered()
	if r == nil {
		u.seen.Works = true
		return nil, nil
	}
	request := *u.request
	request.NoteFor = r.Name()
	if _, err := u.agent.Apply(ctx, request); err != nil {
		return u.nodeError(ctx, err)
	}
	u.seen.Works = true
	return nil, nil
}

// callRegistered calls an updater when it is time, and records what it says.
func (u *update) callRegistered(ctx context.Context, r *registered.Remote, run refitv1.UpdaterRun) (*wait, time.Duration, error) { //nolint:cyclop // one step after the other
	if at := run.AskAgainAt; at != nil {
		if left := at.Sub(u.Clock.Now()); left > 0 {
			return nil, min(left, retryRegistered), u.showRegistered(ctx, run)
		}
	}
	if held := u.occupied.held; held != nil {
		held.Enter("updater")
		if w := u.stillHolds(ctx, held); w != nil {
			return w, 0, nil
		}
	}
	request, err := u.registeredRequest(ctx)
	if err != nil {
		return nil, 0, err
	}
	if run.Message == "" { // first of all, that it may have begun
		run.Message = "it is called"
		if err := u.tellRegistered(ctx, run); err != nil {
			return nil, 0, err
		}
	}
	if err := u.latest(ctx); err != nil { // another server may have called it, without a lease too
		return nil, 0, err
	}
	progress, err := r.Update(ctx, request)
	switch {
	case ctx.Err() != nil:
		return nil, 0, ctx.Err()
	case err != nil: // it passes, or a person has to act; the machine is not replaced for it
		run.AskAgainAt, run.Message = nil, faultOf(err)
		return u.updaterWaits(run.Name, run.Message+"; it is asked again every "+retryRegistered.String()), 0, u.recordRegistered(ctx, run)
	case progress.Done:
		run.Done, run.AskAgainAt, run.Message = true, nil, cmp.Or(progress.Message, "its part is done")
		return nil, 0, u.tellRegistered(ctx, run)
	}
	run.AskAgainAt, run.Message = u.in(progress.RetryAfter), cmp.Or(progress.Message, "it does its part")
	return nil, min(progress.RetryAfter, retryRegistered), u.tellRegistered(ctx, run)
}

// updaterWaits is what an update waits for whose updater does not go on.
func (u *update) updaterWaits(name, why string) *wait {
	return &wait{
		reason: refitv1.ReasonUpdater, retry: retryRegistered,
		message: fmt.Sprintf("UpdaterRegistration %s: %s; the machine may be half changed, and refit keeps the node%s%s", name, why, u.giveUpOffer(), u.rollbackOffer()),
	}
}

// giveUpOffer returns how to end an update whose updater does not end.
func (u *update) giveUpOffer() string {
	return fmt.Sprintf("; to give up what it has begun, and free the node: refit abandon -n %s %s", u.mu.Namespace, u.mu.Name)
}

// byUpdaters returns what the machine has of updaters, of which nothing is put back when the node's own part is.
func (u *update) byUpdaters() string {
	var text string
	for _, run := range u.mu.Status.Updaters {
		part := "has done its part on the machine"
		if !run.Done {
			part = "has begun its part on the machine and not said that it is done"
		}
		text += fmt.Sprintf("; UpdaterRegistration %s %s, which stays", run.Name, part)
	}
	return text
}

// partsOfUpdaters returns what has become of the updaters' parts of an update that can't go on by what the node is like: what keeps it may be what one of them
// was to do. None is called before the node can be updated.
func (u *update) partsOfUpdaters() string {
	var text string
	for _, r := range u.registered {
		if u.runOfRegistered(r.Name()).Done {
			text += fmt.Sprintf("; UpdaterRegistration %s has said that its part is done", r.Name())
		} else {
			text += fmt.Sprintf("; UpdaterRegistration %s is not called before that", r.Name())
		}
	}
	return text
}

// whileUpdater returns what an update waits for while an updater is at work that can't be called on.
func (w *wait) whileUpdater(name, offer string) *wait {
	out := *w
	out.message += fmt.Sprintf("; UpdaterRegistration %s is at work on the machine, which can't be left half done: it is not called meanwhile, and until it is done "+
		"refit keeps the node%s", name, offer)
	return &out
}

// faultOf is what an updater is to blame for, without its name.
func faultOf(err error) string {
	var fault *registered.Fault
	if errors.As(err, &fault) {
		return registered.Printable(fault.Err.Error())
	}
	return registered.Printable(err.Error())
}

func (u *update) in(d time.Duration) *metav1.Time {
	at := metav1.NewTime(u.Clock.Now().Add(d))
	return &at
}

// tellRegistered records how far an updater is, and shows it.
func (u *update) tellRegistered(ctx context.Context, run refitv1.UpdaterRun) error {
	if err := u.recordRegistered(ctx, run); err != nil {
		return err
	}
	return u.showRegistered(ctx, run)
}

// showRegistered shows how far an updater is.
func (u *update) showRegistered(ctx context.Context, run refitv1.UpdaterRun) error {
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Reason, s.Step = refitv1.PhaseApplying, "", "updater "+run.Name
		s.Message = fmt.Sprintf("UpdaterRegistration %s: %s", run.Name, run.Message)
	})
}

// recordRegistered records how far an updater is. From the first time on the machine may be changed.
func (u *update) recordRegistered(ctx context.Context, run refitv1.UpdaterRun) error {
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		if s.ApplyingSince == nil {
			at := u.now()
			s.ApplyingSince, s.AppliedDigest = &at, ""
		}
		i := slices.IndexFunc(s.Updaters, func(r refitv1.UpdaterRun) bool { return r.Name == run.Name })
		if i < 0 {
			s.Updaters = append(s.Updaters, run)
		} else {
			s.Updaters[i] = run
		}
	})
}
