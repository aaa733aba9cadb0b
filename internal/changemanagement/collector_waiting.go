package changemanagement

import (
	"context"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

func (g *group) ask(now time.Time, s *schedule.Schedule) schedule.Decision {
	return orProbe(g.expected, func(expected time.Duration) schedule.Decision {
		return schedule.Decide(schedule.Query{Now: now, ExpectedDuration: expected}, s)
	})
}

// wait has the group open when the policy does for a change that waits: of several, for the one for which that is last.
func (g *group) wait(now time.Time, p *Policy, c Change) {
	key := c.Class.String()
	if !p.Schedule.Scoped() || g.asked[key] {
		return
	}
	first := len(g.asked) == 0
	if first {
		g.asked = map[string]bool{}
	}
	g.asked[key] = true
	s := p.ScheduleFor(c)
	d := g.ask(now, s)
	if eta := g.decision.NextChangeETASeconds; first || later(eta, d.NextChangeETASeconds) != eta {
		g.decision, g.remaining = d, remaining(now, d, s)
	}
}

// waitingFor returns the change that waits, or whichever the policies let start first if none does.
func waitingFor(mu *refitv1.MachineUpdate) Change {
	if mu == nil || !Holds(mu) {
		return Change{Whichever: true}
	}
	return Change{Class: ClassOf(mu)}
}

// wait returns how long the change of a Machine may wait; nothing if none waits.
func (c *Collector) wait(ctx context.Context, s *Candidate, m *clusterv1.Machine, mu *refitv1.MachineUpdate, policies []*Policy) (Wait, error) {
	if mu == nil || !Holds(mu) {
		return Wait{}, nil
	}
	return c.Waits.Of(ctx, s, m, mu, policies)
}

// meet takes the deadline of a change that waits.
func (g *group) meet(now time.Time, due *Due) {
	if due == nil {
		return
	}
	if due.Near(now) {
		g.near++
	}
	if g.due == nil || due.At.Before(g.due.At) {
		g.due = due
	}
}
