package machineupdate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/machineupdate/flow"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/protection"
)

// safePoint is how long a Machine that is to be deleted waits for the end of what runs on its node.
const safePoint = 10 * time.Minute

// askWork asks whether work is under way on a node that is to be released.
func (u *update) askWork(ctx context.Context) (*wait, error) {
	work, err := u.workOnNode(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err() // who is shutting down has not asked
	}
	if err != nil {
		u.couldNotRelease(ctx, err)
		return nil, nil
	}
	u.seen.Work = work
	return nil, nil
}

// askLogin asks a node whose work nobody can follow whether that waits for a login, which it gets: else good work would be put back.
func (u *update) askLogin(ctx context.Context) (*wait, error) {
	u.seen.Work = u.askLast(ctx, flow.Unknown)
	return nil, ctx.Err()
}

// stillLogIn asks the node, too, when an error of the management cluster ends the reconciliation before anybody has.
func (u *update) stillLogIn(ctx context.Context) {
	if u.mayAwaitLogin() {
		u.askLast(ctx, flow.Unknown)
	}
}

// mayAwaitLogin reports whether work on the node may wait for a login of which nobody knows yet.
func (u *update) mayAwaitLogin() bool {
	return u.mu.Status.ApplyingSince != nil && u.regarding != nil && u.seen.Last == "" && u.seen.Work == ""
}

// workOnNode returns what is known of the work on the node. While a hold is met nobody renews the node's lease: when that is another's there
// is nothing left to keep, and when it has lapsed the node is kept only while it answers that it works, and that may wait for a login. A
// login that fails once, before that, says nothing about the work. A person who gives the node up has it freed for good, so that the node
// itself is asked then in any case. What goes anyway is not kept by a node that does not answer.
func (u *update) workOnNode(ctx context.Context) (flow.NodeWork, error) { //nolint:cyclop // a table: one reason to ask, or not to, after the other
	w, freed := u.waits(), u.freed()
	switch {
	case u.regarding == nil:
		return flow.Ended, nil
	case u.seen.Machine == flow.Leaving, !freed && w.reason == refitv1.ReasonTaken: // its workload cluster may be gone with it
		return u.askLast(ctx, flow.Ended), nil
	case !freed && w.reason == refitv1.ReasonUnreachable:
		return flow.Ended, nil
	}
	if err := u.reachWorkload(ctx); err != nil {
		return "", err
	}
	until, err := u.locker().KeptUntil(ctx, u.nodeName(), u.machineUID())
	if err != nil {
		return "", err
	}
	kept := u.Clock.Now().Before(until)
	switch {
	case until.IsZero() && !freed:
		return flow.Ended, nil
	case (kept || u.mu.Status.RebootingSince != nil) && u.boots(ctx, u.regarding):
		return flow.UnderWay, nil
	case kept, !u.mu.DeletionTimestamp.IsZero(), w.reason == refitv1.ReasonWithdrawn:
		return u.askLast(ctx, flow.Unknown), nil
	default:
		return u.askLast(ctx, flow.Ended), nil
	}
}

// freed reports whether a person has given the node up: by abandoning the update, or by deleting the MachineUpdate.
func (u *update) freed() bool { return abandonAsked(u.mu) || !u.mu.DeletionTimestamp.IsZero() }

// askLast asks the node whether its last work is under way. silent is what is taken of a node that can't be asked.
func (u *update) askLast(ctx context.Context, silent flow.NodeWork) flow.NodeWork {
	status, known := u.lastOnNode(ctx, u.regarding)
	if known {
		u.saidLast = &status
	}
	switch {
	case !known:
		return silent
	case underWay(status):
		return flow.UnderWay
	default:
		return flow.Ended
	}
}

// release releases the node: while the update waits, or before it ends.
func (u *update) release(ctx context.Context) (*wait, error) {
	err := u.releaseNode(ctx, u.keepsCordon())
	switch {
	case err == nil:
	case u.seen.Machine == flow.Gone:
		if !u.outlasts(ctx, err) {
			return nil, nil
		}
	case ctx.Err() != nil || abandonAsked(u.mu) && (apierrors.IsConflict(err) || halfWritten(err)):
		return nil, err
	case u.waits() == nil && u.mu.DeletionTimestamp.IsZero():
		return u.notReleased(ctx, err), nil
	default:
		u.couldNotRelease(ctx, err)
		return nil, nil
	}
	u.seen.Released = true
	return nil, nil
}

// keepsCordon reports whether a node stays cordoned that is released: it may be half changed, and nobody has given it up.
func (u *update) keepsCordon() bool {
	if u.fails() || u.isWithdrawn() {
		return u.halfChanged() && !u.freed()
	}
	return u.mu.Status.ApplyingSince != nil && u.waits() != nil && !u.freed()
}

// fails reports whether the update ends without success when its node is released.
func (u *update) fails() bool {
	s := u.state()
	return s.Broken != "" || s.Lost || s.Waits == flow.Unreachable && s.Reboots && s.Overdue
}

// notReleased returns what the end of an update waits for whose node could not be released.
func (u *update) notReleased(ctx context.Context, err error) *wait {
	w, other := u.notAcquired(ctx, err)
	if w == nil || other != nil {
		return unanswered(err)
	}
	w.fails = ""
	return w
}

// couldNotRelease records that the node was not released. What the update waits for is shown all the same.
func (u *update) couldNotRelease(ctx context.Context, err error) {
	ctrl.LoggerFrom(ctx).Error(err, "Could not release the node; it is tried again")
	u.seen.Work, u.unreleased = flow.Unreleased, err
}

// releaseMachine releases a Machine that is being deleted, and its node. The workload cluster may be gone with the Machine: what is there
// must not keep the Machine.
func (u *update) releaseMachine(ctx context.Context) (*wait, error) {
	if u.mu.Status.Node != nil {
		if err := (&protection.Protector{Management: u.Client, Live: u.Live}).ReleaseMachine(ctx, u.subject()); err != nil {
			return nil, err
		}
	}
	if err := u.releaseNode(ctx, true); err != nil {
		ctrl.LoggerFrom(ctx).Info("Could not tidy up at the Node of a Machine that is being deleted", "reason", err.Error())
	}
	u.seen.Released = true
	w := machineDeleted()
	return nil, u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Reason, s.Message = refitv1.PhaseWaiting, w.reason, w.message
		settle(s, settledGivenUp)
	})
}

func underWay(status node.Status) bool {
	return status.State == node.Running && (!status.Interrupted || status.Resumes)
}

// lastOnNode asks the node about the last work there. It returns false if the node can't be asked.
func (u *update) lastOnNode(ctx context.Context, machine *clusterv1.Machine) (node.Status, bool) {
	a, w, err := u.access(ctx, machine)
	if w != nil || err != nil {
		return node.Status{}, false
	}
	var status node.Status
	err = u.overConnection(ctx, a, func(client *remote.Client) (err error) {
		status, err = client.Status(ctx, node.StatusRequest{
			Protocol: node.Protocol, Digest: u.mu.Status.ObservedDigest, Machine: u.machineID(machine),
		})
		return err
	})
	if err == nil && status.AwaitsLogin { // else what it has done would be put back, since nobody follows it now
		_ = u.logIn(ctx, a, node.StatusRequest{
			Protocol: node.Protocol, Machine: u.machineID(machine), Digest: status.Digest, Token: status.Token, Confirm: true,
		})
	}
	return status, err == nil
}

// nodeError turns an error of reaching the node, or of the agent on it, into what the update waits for. Errors of the
// management cluster are returned.
func (u *update) nodeError(ctx context.Context, err error) (*wait, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err() // shutting down; whoever leads next goes on
	}
	if errors.Is(err, lease.ErrLost) || errors.Is(err, lease.ErrUnrenewed) {
		return lost(err), nil
	}
	if w := u.met(err); w != nil {
		return w, nil
	}
	return nil, err
}

// reboots reports whether the node may be away because it was asked to reboot.
func (u *update) reboots() bool {
	s := &u.mu.Status
	return s.ApplyingSince != nil && (s.RebootingSince != nil || s.Plan != nil && s.Plan.Reboots)
}

// rebootPatience is how long a node may be away since it began to reboot. One that can't be logged in to after that waits for a login, puts
// everything back and reboots once more, all of which looks the same from here.
func (u *update) rebootPatience() time.Duration {
	within := disruption.DefaultConfirmWithin
	if u.selected != nil {
		within = cmp.Or(u.selected.Rules.ConfirmWithin, within)
	}
	return 2*u.RebootTimeout + within
}

// awaitBoot waits for a node that reboots, for a while.
func (u *update) awaitBoot(ctx context.Context) (ctrl.Result, error) {
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Reason = refitv1.PhaseApplying, ""
		s.Message = "the node reboots and does not answer yet"
		if at := u.now(); s.RebootingSince == nil {
			s.RebootingSince = &at
		}
	})
	return ctrl.Result{RequeueAfter: retryDrain}, err
}

// failFor ends the update for what it would have to wait for without end.
func (u *update) failFor(ctx context.Context) (ctrl.Result, error) {
	w := u.waitsFor
	switch {
	case u.reason != flow.NodeNotBack:
		return u.fail(ctx, string(u.reason), w.message)
	case w.reason != refitv1.ReasonUnreachable || !u.reboots():
		return u.fail(ctx, string(u.reason), fmt.Sprintf("the node may be half changed, and for %s the work on it could not go on; "+
			"refit no longer keeps those off who would mend the node or make it again: %s", u.rebootPatience(), w.message))
	}
	return u.fail(ctx, string(u.reason), fmt.Sprintf("the node was to reboot and is not back after %s; the last that was seen of it: step %q; and now: %s",
		u.rebootPatience(), u.mu.Status.Step, w.message))
}
