package machineupdate

import (
	"context"
	"time"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/machineupdate/flow"
	"github.com/capi-refit/refit/internal/node"
)

// connect logs in to the node. One connection serves the whole reconciliation, and, as long as nothing has begun on the node, the next ones.
func (u *update) connect(ctx context.Context) (*wait, error) {
	// What the update shows stays until the node has answered, if it says more than that refit connects.
	if shown := u.mu.Status.Phase; shown != refitv1.PhaseWaiting && !u.started() {
		if err := u.enter(ctx, refitv1.PhaseStaging, "connect", "connecting to the node"); err != nil {
			return nil, err
		}
	}
	a := u.login.access
	target := a.Target
	if u.mu.Status.ApplyingSince == nil { // from then on each login shows that the node still lets refit in
		target.Kept = a.Digest
	}
	conn, err := u.Dialer.Dial(ctx, target)
	if err != nil {
		return u.nodeError(ctx, err)
	}
	u.conn = conn
	u.silent.Delete(u.subject().ObjectKey)
	if u.agent, err = a.Client(conn, u.Agents); err != nil {
		return &wait{reason: refitv1.ReasonNodeAccess, message: err.Error()}, nil
	}
	u.fence(u.request)
	u.seen.Connected = true
	return nil, nil
}

// disconnect ends the connection: the work is done, or goes on without it.
func (u *update) disconnect() {
	if u.conn != nil {
		_ = u.conn.Close()
		u.conn = nil
	}
}

// look has the node compare itself with what is desired.
func (u *update) look(ctx context.Context) (*wait, error) {
	if err := u.tellLook(ctx); err != nil {
		return nil, err
	}
	plan, err := u.agent.Plan(ctx, *u.request)
	if err != nil {
		return u.nodeError(ctx, err)
	}
	if w, err := u.planNode(ctx, &plan); w != nil || err != nil {
		return w, err
	}
	if w, err := u.skewed(ctx, plan); w != nil || err != nil {
		return w, err
	}
	if len(plan.Blocked) > 0 {
		return &wait{reason: refitv1.ReasonBlocked, message: u.blocked(u.origin.because(plan.Blocked)) + u.partsOfUpdaters()}, nil
	}
	u.planRegistered(&plan)
	u.plan = plan
	u.seen.Plan = flow.Plan{
		Known: true, Effect: effect(plan.Disturbs()), Drains: plan.Drains(),
		Stages: len(plan.Stage) > 0, Source: u.origin.source != nil, Early: u.origin.early,
		Refused: u.selected.Drift == refitv1.RefuseDrift && len(driftOf(plan)) > 0,
	}
	return nil, u.booted(ctx, u.last) // now that it has answered to the end
}

// askNode asks the node how its last work for these specs stands.
func (u *update) askNode(ctx context.Context) (*wait, error) {
	last, err := u.lastRun(ctx)
	if err != nil {
		return u.nodeError(ctx, err)
	}
	u.last, u.seen.Last = last, u.runOf(last)
	return nil, nil
}

// awaitNode waits for the end of the node's work for other specs before registered updaters are called for these.
func (u *update) awaitNode(context.Context) (*wait, error) {
	return &wait{
		reason: refitv1.ReasonBusy, retry: 2 * time.Second,
		message: "the node works on specs that were asked for before; registered updaters are called when that has ended",
	}, nil
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

// fence puts the token of the node's lease into a request.
func (u *update) fence(request *node.Request) {
	request.Token, request.WaitSeconds = u.mu.Status.Token, applyWaitSeconds
	if held := u.occupied.held; held != nil {
		request.Token = held.Token()
	}
}

// lastRun asks what the node did last for these specs. Without an attempt it has done nothing, but what an attempt before this try
// has begun may still be under way. A run that waits for a login gets one, also if it is for specs that were asked for before.
func (u *update) lastRun(ctx context.Context) (node.Status, error) { //nolint:cyclop // one reason why a run says nothing after the other
	request, first := u.request, u.mu.Status.Attempts == 0
	if first && u.mu.Status.ApplyingSince == nil && !u.seen.Due {
		return node.Status{State: node.Idle}, nil
	}
	status, err := u.agent.Status(ctx, node.StatusRequest{Protocol: node.Protocol, Machine: request.Machine, Digest: request.Digest})
	if err == nil {
		err = u.confirm(ctx, request, status)
	}
	u.seen.Busy = err == nil && underWay(status) && status.Digest != request.Digest
	if err == nil && (status.Digest != request.Digest || u.beforeRepair(status)) {
		return node.Status{State: node.Idle}, nil
	}
	if err == nil && first && (status.State != node.Running || status.Interrupted) {
		return node.Status{State: node.Idle}, nil // how an earlier try has ended says nothing about this one
	}
	return status, err
}
