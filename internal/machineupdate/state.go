package machineupdate

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/machineupdate/flow"
	"github.com/capi-refit/refit/internal/node"
)

// state is what is known of the update now.
func (u *update) state() flow.State {
	seen := u.seen
	if u.closed == nil && seen.Window != "" { // what it was closed by does not matter any more
		seen.Window = flow.Open
	}
	if w := u.waits(); w != nil {
		seen.Preempted = w.releases || w.decision != nil
	}
	return flow.State{Seen: seen, Record: u.recorded()}
}

// recorded is what the MachineUpdate says.
func (u *update) recorded() flow.Record {
	s := &u.mu.Status
	return flow.Record{
		Deleted:   !u.mu.DeletionTimestamp.IsZero(),
		Finished:  finished(u.mu),
		New:       s.ObservedDigest != u.mu.Spec.Digest || retryAsked(u.mu),
		Kept:      hasFinalizer(u.mu),
		Failed:    s.Phase == refitv1.PhaseFailed,
		Changed:   s.ApplyingSince != nil,
		Clean:     clean(s),
		Abandon:   abandonAsked(u.mu),
		Rollback:  rollbackAsked(u.mu),
		Repair:    s.Repair != nil,
		Attempted: s.Attempts > 0,
		Draining:  s.Drain != nil,
		Drained:   s.Drain != nil && s.Drain.FinishedAt != nil,
		Planned:   plannedEffect(s.Plan),
		Admission: admittedEffect(s.Admission),
		Marked:    s.Node != nil,
		Updaters:  updatersOf(s),
		Stalled:   u.isStalled(),
		Lost:      u.isLost(),
		Reboots:   u.reboots(),
		Overdue:   s.RebootingSince != nil && u.Clock.Since(s.RebootingSince.Time) > u.rebootPatience(),
	}
}

func plannedEffect(p *refitv1.PlannedWork) flow.Effect {
	if p == nil {
		return ""
	}
	return effect(p.Material)
}

func admittedEffect(a *refitv1.Admission) flow.Effect {
	if a == nil {
		return ""
	}
	return effect(a.Reason != refitv1.NotMaterial)
}

func effect(disturbs bool) flow.Effect {
	if disturbs {
		return flow.Disturbing
	}
	return flow.Quiet
}

// whereabouts tells by what a Machine's update waits for what has become of the Machine.
func whereabouts(machine *clusterv1.Machine, w *wait) flow.Machine {
	switch {
	case w != nil && w.reason == refitv1.ReasonDeleting && machine == nil:
		return flow.Replaced
	case w != nil && w.reason == refitv1.ReasonDeleting:
		return flow.Leaving
	case w != nil:
		return flow.HeldBack
	case machine == nil:
		return flow.Gone
	default:
		return flow.Present
	}
}

// runOf is how work on the node stands. What has failed and was acted upon says nothing new.
func (u *update) runOf(status node.Status) flow.Run {
	switch {
	case status.State == node.Failed && status.Token == u.mu.Status.FailedToken:
		return flow.FailedBefore
	case status.State == node.Failed:
		return flow.RunFailed
	case status.State == node.Running:
		return flow.Running
	case status.State == node.Succeeded:
		return flow.Succeeded
	default:
		return flow.Idle
	}
}
