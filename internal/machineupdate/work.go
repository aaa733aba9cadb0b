package machineupdate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/machineupdate/flow"
	"github.com/capi-refit/refit/internal/node"
)

// How long one call of the agent waits for the end of the work.
const (
	applyWaitSeconds  = 5
	statusWaitSeconds = 10
)

// claim records that the work starts, on which Node, and the slot that it takes for that; nil if it has one, or needs none.
func (u *update) claim(ctx context.Context, admission refitv1.Admission, slot *refitv1.Slot) error {
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		admitted(s, admission)
		if slot != nil {
			s.Slot = slot
		}
		if s.Instance != u.Instance && s.Drain != nil && s.Drain.FinishedAt == nil {
			s.Drain = u.drainedOn(s.Drain)
		}
		s.Instance = u.Instance
		s.Address = u.login.access.Target.Addresses[0].String()
		if admission.Reason != refitv1.NotMaterial {
			s.Node = &refitv1.NodeReference{Name: u.regarding.Status.NodeRef.Name, UID: u.occupied.held.NodeUID()}
		}
		if s.Phase != refitv1.PhaseDraining && (s.Phase != refitv1.PhaseApplying || u.seen.Last != flow.Running) {
			s.Phase, s.Reason, s.Step, s.Message = refitv1.PhaseApplying, "", "apply", describe(u.plan)
		}
	})
	if err == nil {
		u.seen.Admitted, u.closed = true, nil
	}
	return err
}

// drainedOn is a drain that another leader goes on with. While nobody led, nobody asked pods to leave: that time does not count.
func (u *update) drainedOn(d *refitv1.DrainStatus) *refitv1.DrainStatus {
	gap, known := u.occupied.held.Unkept()
	if !known {
		return restartedDrain(d, u.now())
	}
	on := d.DeepCopy()
	on.StartedAt = metav1.NewTime(d.StartedAt.Add(gap))
	return on
}

// longestFollow is how long work is followed in one reconciliation. After that all is asked again that may have changed meanwhile: whether
// the Machine is being deleted, or the node held.
const longestFollow = time.Minute

// work has the node do its work. What is still under way after a while is followed in the next reconciliation.
func (u *update) work(ctx context.Context) (ctrl.Result, bool, error) {
	w, err := u.doWork(ctx)
	switch {
	case err != nil:
		return ctrl.Result{}, false, err
	case w != nil:
		u.blockOn(w)
	case u.seen.Ran == "": // it is under way
		return ctrl.Result{RequeueAfter: time.Millisecond}, false, nil
	}
	return ctrl.Result{}, true, nil
}

// doWork has the node begin its work, or go on with it, and follows it. Ran is not known after that while the work is under way.
func (u *update) doWork(ctx context.Context) (*wait, error) {
	// A person who has asked for another try has been told how the one before has failed.
	u.request.UnderWay = u.seen.Last == flow.Running && u.mu.Status.Attempts > 0
	if u.seen.Plan.Known {
		u.request.Permitted = append([]disruption.Action{}, u.plan.Actions...) // none is not nil
		u.request.Quiet = !u.plan.Disturbs()
	}
	if held := u.occupied.held; held != nil {
		held.Enter("apply")
		if w := u.stillHolds(ctx, held); w != nil {
			return w, nil
		}
		if err := u.recordWork(ctx); err != nil {
			return nil, err
		}
	}
	status, err := u.apply(ctx)
	if err != nil {
		return u.nodeError(ctx, err)
	}
	if status.State == node.Running {
		return nil, nil
	}
	u.ran, u.seen.Ran = status, flow.Succeeded
	if status.State == node.Failed {
		u.seen.Ran = flow.RunFailed
	}
	return nil, nil
}

// recordWork records that the node may be changed from now on.
func (u *update) recordWork(ctx context.Context) error {
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		at := u.now()
		if s.ApplyingSince == nil {
			s.ApplyingSince = &at
			s.AppliedDigest = "" // from here on nobody knows, until the node is verified
		}
		s.Token = u.request.Token
		if !u.request.UnderWay { // else it shows where it is
			s.Attempts++
			s.Phase, s.Reason, s.Step = refitv1.PhaseApplying, "", "apply"
		}
	})
}

// stillHolds returns what work waits for that is about to begin: the lease is renewed first. Time may have passed since the last check,
// and a server that was suspended meanwhile must not begin on a node that another has released.
func (u *update) stillHolds(ctx context.Context, held *lease.Held) *wait {
	if u.seen.InProgress() {
		return nil
	}
	switch err := held.Renew(ctx); {
	case errors.Is(err, lease.ErrLost):
		return lost(err)
	case err != nil:
		return unanswered(err)
	default:
		return nil
	}
}

// apply has the node do the work, or finds it under way, and follows it to its end, or for a while.
func (u *update) apply(ctx context.Context) (node.Status, error) {
	client, request := u.agent, u.request
	status, err := client.Apply(ctx, *request)
	began := u.Clock.Now()
	for err == nil && status.State == node.Running && status.Digest == request.Digest {
		if err = u.follow(ctx, status); err != nil {
			return status, err
		}
		if held := u.occupied.held; held != nil {
			if err := held.Allows(false); err != nil {
				return status, err
			}
		}
		if u.Clock.Since(began) >= longestFollow {
			return status, nil
		}
		if status.Interrupted {
			// The work has lost who did it. Asked for again, it goes on at the first step that is not done.
			status, err = client.Apply(ctx, *request)
			continue
		}
		if err = u.confirm(ctx, request, status); err != nil {
			return status, err
		}
		status, err = client.Status(ctx, node.StatusRequest{
			Protocol: node.Protocol, Machine: request.Machine, Digest: request.Digest, WaitSeconds: statusWaitSeconds,
		})
	}
	if err == nil {
		err = misplaced(status, request.Digest)
	}
	return status, err
}

// misplaced returns an error when a status is not about the end of the work for the digest.
func misplaced(status node.Status, digest string) error {
	switch {
	case status.State == node.Idle:
		return &node.AgentError{Reason: node.ReasonInternal, Message: "the node has lost track of the work"}
	case status.Digest != digest:
		return &node.AgentError{Reason: node.ReasonBusy, Message: "the node works on other specs; waiting for that to end"}
	default:
		return nil
	}
}

// follow shows how far the node has come.
func (u *update) follow(ctx context.Context, status node.Status) error {
	u.lost.Delete(u.subject().ObjectKey)
	show, now := u.tell, &u.mu.Status
	if status.AwaitsLogin || status.Rebooting != (now.RebootingSince != nil) || status.Step == node.StepSoak && now.SoakingSince == nil {
		show = u.set // for whoever goes on after a crash
	}
	return show(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Step, s.StepsDone, s.StepsTotal = status.Step, int32(status.Done), int32(status.Total)
		s.Message = fmt.Sprintf("the node has done %d of %d steps", status.Done, status.Total)
		switch {
		case status.AwaitsLogin:
			s.Message = u.login.awaited(status)
		case status.Message != "":
			s.Message += ": " + status.Message
		}
		if at := u.now(); !status.Rebooting {
			s.RebootingSince = nil
		} else if s.RebootingSince == nil {
			s.RebootingSince = &at
		}
		if at := u.now(); status.Step == node.StepSoak && s.SoakingSince == nil {
			s.SoakingSince = &at
		}
	})
}

// takeFailure has the update fail with what the node reports: of the work that was followed, or of work that failed before refit could tell.
func (u *update) takeFailure(ctx context.Context) (ctrl.Result, bool, error) {
	status := u.last
	if u.seen.Ran == flow.RunFailed {
		status = u.ran
	}
	u.failedRun = &status
	if status.NeedsReboot {
		result, err := u.rebootToRead(ctx, status)
		return result, false, err
	}
	u.blockOn(&wait{fails: "NodeFailed", message: "the node reports: " + status.Message})
	return ctrl.Result{}, true, nil
}

// rebootToRead goes on after a run whose changes did not take effect, where the policy says that a reboot is to make them. The
// node's next plan has the reboot, so it comes with all that a reboot takes. The agent asks for it once.
func (u *update) rebootToRead(ctx context.Context, status node.Status) (ctrl.Result, error) {
	u.noteRun(status)
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.FailedToken, s.SoakingSince = status.Token, nil
		s.Phase, s.Reason, s.Step, s.Message = refitv1.PhaseStaging, "", "plan", "the node reports: "+status.Message
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	u.event(corev1.EventTypeWarning, "InPlaceUpdateReboots", "Reboot", u.mu.Status.Message)
	return ctrl.Result{RequeueAfter: time.Second}, nil
}

// notVerified is what a proof is missing for, so that the update has failed.
func notVerified(message string) *wait { return &wait{fails: "NotVerified", message: message} }

// verify asks the node to compare itself with what is desired once more. Only when nothing is left to do the update is done.
func (u *update) verify(ctx context.Context) (*wait, error) {
	if err := u.tellRun(ctx); err != nil {
		return nil, err
	}
	plan, err := u.agent.Plan(ctx, *u.request)
	if err != nil {
		return u.nodeError(ctx, err)
	}
	if len(plan.Blocked) > 0 || len(plan.Changes) > 0 || plan.Disturbs() {
		return notVerified("the node does not show what was applied: " + describe(plan)), nil
	}
	u.notes, u.left = slices.Clip(u.ran.Notes), plan.Drift
	if u.selected != nil {
		u.notes = append(u.notes, u.selected.Unsafe...)
	}
	for _, d := range plan.Drift {
		// Of other kinds than files a part can be drift that the run was not to change; the agent has told them apart.
		if d.Kind == node.FileKind && slices.ContainsFunc(u.ran.Changes, func(c node.Change) bool { return c.Ref == d.Ref }) {
			return notVerified(fmt.Sprintf("%s was written and is another again (%s); something on the node changes it", d.Ref, strings.Join(d.What, ", "))), nil
		}
		u.notes = append(u.notes, fmt.Sprintf("%s was changed on the node (%s) and not in the specs; it was left as it is", d.Ref, strings.Join(d.What, ", ")))
	}
	u.seen.Verified = true
	return nil, nil
}

// tellRun shows what the work on the node has changed and done.
func (u *update) tellRun(ctx context.Context) error {
	show := u.tell
	if u.mu.Status.RebootingSince != nil {
		show = u.set // for whoever goes on after a crash
	}
	return show(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Reason, s.Step, s.Message = refitv1.PhaseVerifying, "", "compare", "comparing the node with what is desired"
		s.RebootingSince, s.Changes, s.Actions = nil, nodeChanges(s.Changes), nil
		s.StepsDone, s.StepsTotal = int32(u.ran.Total), int32(u.ran.Total)
		for _, c := range u.ran.Changes {
			s.Changes = append(s.Changes, refitv1.Change{Kind: string(c.Kind), Name: c.Name, Operation: string(c.Operation), Conflict: c.Conflict})
		}
		for _, a := range u.ran.Actions {
			s.Actions = append(s.Actions, a.String())
		}
		s.WorstAction = worstOf(u.ran.Actions)
	})
}
