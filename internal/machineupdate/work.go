package machineupdate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// How long one call of the agent waits for the end of the work.
const (
	applyWaitSeconds  = 5
	statusWaitSeconds = 10
)

// onNode does what is done over a connection to the node. One connection serves the whole update.
func (u *update) onNode(ctx context.Context, a *access, request *node.Request) (ctrl.Result, error) {
	// What the update shows stays until the node has answered, if it says more than that refit connects.
	if shown := u.mu.Status.Phase; shown != refitv1.PhaseWaiting && !u.started() {
		if err := u.enter(ctx, refitv1.PhaseStaging, "connect", "connecting to the node"); err != nil {
			return ctrl.Result{}, err
		}
	}
	conn, err := u.Dialer.Dial(ctx, a.target)
	if err != nil {
		return u.nodeError(ctx, err)
	}
	defer conn.Close() //nolint:errcheck // the work is done, or goes on without the connection
	client, err := u.client(conn, a)
	if err != nil {
		return u.await(ctx, &wait{reason: refitv1.ReasonNodeAccess, message: err.Error()})
	}
	u.fence(request)
	if u.occupied.held == nil {
		return u.endRun(ctx, client, request)
	}
	return u.look(ctx, client, a, request)
}

// look has the node compare itself with what is desired, and goes on with what that takes when it may.
func (u *update) look(ctx context.Context, client *node.Client, a *access, request *node.Request) (ctrl.Result, error) {
	if err := u.tellLook(ctx); err != nil {
		return ctrl.Result{}, err
	}
	plan, err := client.Plan(ctx, *request)
	if err != nil {
		return u.nodeError(ctx, err)
	}
	if w, err := u.planNode(ctx, &plan); w != nil || err != nil {
		result, _, err := u.hindered(ctx, w, err)
		return result, err
	}
	if len(plan.Blocked) > 0 {
		return u.await(ctx, &wait{reason: refitv1.ReasonBlocked, message: u.blocked(u.release.because(plan.Blocked))})
	}
	last, err := u.lastRun(ctx, client, request)
	if err != nil {
		return u.nodeError(ctx, err)
	}
	if err := u.booted(ctx, last); err != nil {
		return ctrl.Result{}, err
	}
	if w := u.refused(plan, last); w != nil {
		return u.await(ctx, w)
	}
	if last.State != node.Running && u.staging(plan) {
		return u.stage(ctx, client, request, plan)
	}
	return u.start(ctx, client, a, request, plan, last)
}

// booted records that a node that was to reboot, maybe for specs that were asked for before, answers again.
func (u *update) booted(ctx context.Context, last node.Status) error {
	if u.mu.Status.RebootingSince == nil || last.Rebooting {
		return nil
	}
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) { s.RebootingSince = nil })
}

// tellLook tells that the node is being looked at. What waits shows for what until there is news.
func (u *update) tellLook(ctx context.Context) error {
	if u.mu.Status.Phase == refitv1.PhaseWaiting || u.started() {
		return nil
	}
	return u.enter(ctx, refitv1.PhaseStaging, "plan", "the node compares itself with what is desired")
}

// start has the node do what it has planned, when it may.
func (u *update) start(
	ctx context.Context, client *node.Client, a *access, request *node.Request, plan node.Plan, last node.Status,
) (ctrl.Result, error) {
	w, err := u.admit(ctx, last, plan, func(admission refitv1.Admission) error { return u.claim(ctx, a, plan, admission) })
	switch {
	case err != nil:
		return u.nodeError(ctx, err)
	case w != nil:
		return u.await(ctx, w)
	}
	u.closed = nil
	if len(plan.Stage) > 0 && last.State != node.Running { // the window has opened just now
		return ctrl.Result{RequeueAfter: retryStage}, nil
	}
	return u.work(ctx, client, request, plan, last)
}

func (u *update) client(conn node.Conn, a *access) (*node.Client, error) {
	ssh := a.spec.SSH
	return node.NewClient(conn, node.ClientOptions{Agents: u.Agents, Dir: a.spec.AgentDirectory, Sudo: ssh.Sudo, Gate: gateMode(ssh)})
}

// fence puts the token of the node's lease into a request.
func (u *update) fence(request *node.Request) {
	request.Token, request.WaitSeconds = u.mu.Status.Token, applyWaitSeconds
	if held := u.occupied.held; held != nil {
		request.Token = held.Token()
	}
}

// lastRun asks what the node did last for these specs. Without an attempt it has done nothing, but what an attempt before this try
// has begun may still be under way.
func (u *update) lastRun(ctx context.Context, client *node.Client, request *node.Request) (node.Status, error) {
	first := u.mu.Status.Attempts == 0
	if first && u.mu.Status.ApplyingSince == nil {
		return node.Status{State: node.Idle}, nil
	}
	status, err := client.Status(ctx, node.StatusRequest{Protocol: node.Protocol, Machine: request.Machine, Digest: request.Digest})
	if err == nil && (status.Digest != request.Digest || u.beforeRepair(status)) {
		return node.Status{State: node.Idle}, nil
	}
	if err == nil && first && (status.State != node.Running || status.Interrupted) {
		return node.Status{State: node.Idle}, nil // how an earlier try has ended says nothing about this one
	}
	return status, err
}

// claim records that the work starts, and on which Node.
func (u *update) claim(ctx context.Context, a *access, plan node.Plan, admission refitv1.Admission) error {
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		admitted(s, admission)
		if s.Instance != u.Instance && s.Drain != nil && s.Drain.FinishedAt == nil {
			s.Drain = u.drainedOn(s.Drain)
		}
		s.Instance = u.Instance
		s.Address = a.target.Addresses[0].String()
		if admission.Reason != refitv1.NotMaterial {
			s.Node = &refitv1.NodeReference{Name: u.regarding.Status.NodeRef.Name, UID: u.occupied.held.NodeUID()}
		}
		if s.Phase != refitv1.PhaseDraining {
			s.Phase, s.Reason, s.Step, s.Message = refitv1.PhaseApplying, "", "apply", describe(plan)
		}
	})
}

// drainedOn is a drain that another leader goes on with. While nobody led, nobody asked pods to leave: that time does not count.
func (u *update) drainedOn(d *refitv1.DrainStatus) *refitv1.DrainStatus {
	gap, known := u.occupied.held.Unkept()
	if !known {
		return drainedAnew(d, u.now())
	}
	on := d.DeepCopy()
	on.StartedAt = metav1.NewTime(d.StartedAt.Add(gap))
	return on
}

// work has the node do what it has planned, and sees that it is done.
func (u *update) work(ctx context.Context, client *node.Client, request *node.Request, plan node.Plan, last node.Status) (ctrl.Result, error) {
	if last.State == node.Failed && last.Token != u.mu.Status.FailedToken {
		return u.nodeFailed(ctx, last) // refit ended before it could tell
	}
	begun := last.State == node.Running || last.State == node.Succeeded
	if result, ok, err := u.protect(ctx, plan, begun); !ok || err != nil {
		return result, err
	}
	return u.finishRun(ctx, client, request)
}

// endRun takes what is under way on the node to its end without the node's lease: it may be what keeps the workload cluster's API
// server away. Nothing begins.
func (u *update) endRun(ctx context.Context, client *node.Client, request *node.Request) (ctrl.Result, error) {
	last, err := u.lastRun(ctx, client, request)
	switch {
	case err != nil:
		return u.nodeError(ctx, err)
	case last.State == node.Failed && last.Token != u.mu.Status.FailedToken:
		return u.nodeFailed(ctx, last)
	case last.State == node.Running || last.State == node.Succeeded:
		return u.finishRun(ctx, client, request)
	default:
		return u.await(ctx, apiAway())
	}
}

// finishRun has the node begin its work, or go on with it, and follows it to its end.
func (u *update) finishRun(ctx context.Context, client *node.Client, request *node.Request) (ctrl.Result, error) {
	if held := u.occupied.held; held != nil {
		held.Enter("apply")
		err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
			at := u.now()
			if s.ApplyingSince == nil {
				s.ApplyingSince = &at
				s.AppliedDigest = "" // from here on nobody knows, until the node is verified
			}
			s.Attempts++
			s.Token = request.Token
			s.Phase, s.Reason, s.Step = refitv1.PhaseApplying, "", "apply"
		})
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	status, err := u.apply(ctx, client, request)
	if err != nil {
		return u.nodeError(ctx, err)
	}
	if status.State == node.Failed {
		return u.nodeFailed(ctx, status)
	}
	return u.verify(ctx, client, request, status)
}

// apply has the node do the work, or finds it under way, and follows it to its end.
func (u *update) apply(ctx context.Context, client *node.Client, request *node.Request) (node.Status, error) {
	status, err := client.Apply(ctx, *request)
	for err == nil && status.State == node.Running && status.Digest == request.Digest {
		if err = u.follow(ctx, status); err != nil {
			return status, err
		}
		if held := u.occupied.held; held != nil {
			if err := held.Allows(false); err != nil {
				return status, err
			}
		}
		if status.Interrupted {
			// The work has lost who did it. Asked for again, it goes on at the first step that is not done.
			status, err = client.Apply(ctx, *request)
			continue
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
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Step, s.StepsDone, s.StepsTotal = status.Step, int32(status.Done), int32(status.Total)
		s.Message = fmt.Sprintf("the node has done %d of %d steps", status.Done, status.Total)
		if at := u.now(); !status.Rebooting {
			s.RebootingSince = nil
		} else if s.RebootingSince == nil {
			s.RebootingSince = &at
		}
	})
}

// nodeFailed ends the update with what the node reports.
func (u *update) nodeFailed(ctx context.Context, status node.Status) (ctrl.Result, error) {
	u.failedRun = &status
	if status.NeedsReboot {
		return u.rebootToRead(ctx, status)
	}
	return u.fail(ctx, "NodeFailed", "the node reports: "+status.Message)
}

// rebootToRead goes on after a run whose changes did not take effect, where the policy says that a reboot is to make them. The
// node's next plan has the reboot, so it comes with all that a reboot takes. The agent asks for it once.
func (u *update) rebootToRead(ctx context.Context, status node.Status) (ctrl.Result, error) {
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.FailedToken = status.Token
		s.Phase, s.Reason, s.Step, s.Message = refitv1.PhaseStaging, "", "plan", "the node reports: "+status.Message
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	u.event(corev1.EventTypeWarning, "InPlaceUpdateReboots", "Reboot", u.mu.Status.Message)
	return ctrl.Result{RequeueAfter: time.Second}, nil
}

// verify asks the node to compare itself with what is desired once more. Only when nothing is left to do the update is
// done.
func (u *update) verify(ctx context.Context, client *node.Client, request *node.Request, status node.Status) (ctrl.Result, error) {
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Reason, s.Step, s.Message = refitv1.PhaseVerifying, "", "compare", "comparing the node with what is desired"
		s.RebootingSince, s.Changes, s.Actions = nil, nodeChanges(s.Changes), nil
		s.StepsDone, s.StepsTotal = int32(status.Total), int32(status.Total)
		for _, c := range status.Changes {
			s.Changes = append(s.Changes, refitv1.Change{Kind: string(c.Kind), Name: c.Name, Operation: string(c.Operation), Conflict: c.Conflict})
		}
		for _, a := range status.Actions {
			s.Actions = append(s.Actions, a.String())
		}
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	plan, err := client.Plan(ctx, *request)
	if err != nil {
		return u.nodeError(ctx, err)
	}
	if len(plan.Blocked) > 0 || len(plan.Changes) > 0 || disturbs(plan) {
		return u.fail(ctx, "NotVerified", "the node does not show what was applied: "+describe(plan))
	}
	notes := status.Notes
	u.left = plan.Drift
	for _, d := range plan.Drift {
		// Of other kinds than files a part can be drift that the run was not to change; the agent has told them apart.
		if d.Kind == node.FileKind && slices.ContainsFunc(status.Changes, func(c node.Change) bool { return c.Ref == d.Ref }) {
			return u.fail(ctx, "NotVerified", fmt.Sprintf("%s was written and is another again (%s); something on the node changes it", d.Ref, strings.Join(d.What, ", ")))
		}
		notes = append(notes, fmt.Sprintf("%s was changed on the node (%s) and not in the specs; it was left as it is", d.Ref, strings.Join(d.What, ", ")))
	}
	return u.finish(ctx, status, notes)
}

// done gives the node back, and says that the update has been made.
func (u *update) done(ctx context.Context, message string, notes []string) (ctrl.Result, error) {
	if w, err := u.notReady(ctx); w != nil || err != nil {
		result, _, err := u.hindered(ctx, w, err)
		return result, err
	}
	if err := u.vacate(ctx, false); err != nil {
		w, err := u.unanswered(err)
		result, _, err := u.hindered(ctx, w, err)
		return result, err
	}
	return u.succeed(ctx, message, notes)
}
