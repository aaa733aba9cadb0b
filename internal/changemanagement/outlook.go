package changemanagement

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// Outlook is what policies mean, as of one instant, for changes of Machines that wait, whether or not there is a MachineUpdate yet. It lets none
// start. It is for one goroutine.
type Outlook struct {
	gate     *Gate
	now      time.Time
	measured estimates
	spent    map[types.NamespacedName]Spent // by policy
	// plain are decisions about Machines that nothing but their policies says something about.
	plain map[together]Decision
}

// Outlook returns the outlook of a namespace.
func (g *Gate) Outlook(ctx context.Context, namespace string) (*Outlook, error) {
	o := &Outlook{gate: g, now: g.Clock.Now(), plain: map[together]Decision{}, spent: map[types.NamespacedName]Spent{}}
	var err error
	if o.measured, err = g.measured(ctx, namespace); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	b, err := g.glance(ctx, namespace)
	if err != nil {
		return nil, err
	}
	for _, p := range b.policies {
		if !p.limited() {
			continue
		}
		from, _ := p.period(o.now, p.Schedule)
		t, err := b.count(ctx, p, types.NamespacedName{}, from)
		if err != nil {
			return nil, err
		}
		o.spent[p.NamespacedName] = Spent{Running: t.running, Failed: t.failed, Starts: t.starts, Last: t.last}
	}
	return o, nil
}

// Now is the instant that it is about.
func (o *Outlook) Now() time.Time { return o.now }

// Prospect is what the policies of a Machine mean for its change.
type Prospect struct {
	Decision
	Role refitv1.Role
	// Expected is how long the change is expected to take, by what was measured or else by what the policies expect. 0: nobody knows.
	Expected time.Duration
	// Configured is since when the Machine has the configuration that it has. The oldest goes first.
	Configured time.Time
	// Class is what the change is, as far as that is known, Schedules are those that are asked when it may start, and Budgeted the policies whose
	// budgets count for it.
	Class     schedule.Class
	Schedules []*schedule.Schedule
	Budgeted  []*Policy
	// Earliest is when all policies let it start together, budgets aside: now, or later. It is zero if that is not before something else happens.
	Earliest time.Time
}

// Of returns the prospect of a Machine, of which mu is the update. If that is nil, there is none yet, and class is what is known of the change.
func (o *Outlook) Of(ctx context.Context, m *clusterv1.Machine, mu *refitv1.MachineUpdate, class schedule.Class) (Prospect, error) {
	r := &record{key: client.ObjectKeyFromObject(m), change: Change{Class: class}, configured: m.CreationTimestamp.Time}
	var err error
	if mu != nil {
		r, err = o.gate.record(ctx, m, mu)
	} else if r.candidate, err = (Candidates{o.gate.Client}).Machine(ctx, m); err == nil {
		r.policies, err = o.gate.Policies.Select(r.candidate)
		r.change.Expected = o.measured.longest(r.candidate.Role, r.policies...)
	}
	if err != nil {
		return Prospect{}, err
	}
	p := Prospect{Decision: o.decide(r), Role: r.candidate.Role, Expected: r.change.Expected, Configured: r.configured, Class: r.change.Class}
	p.Schedules, p.Budgeted = p.schedules, p.budgeted()
	if p.Open && p.Reason == schedule.Overridden {
		p.Schedules, _ = asked(p.firm, p.lifted, r.change)
	}
	if p.Expected == 0 {
		for _, policy := range r.policies {
			p.Expected = max(p.Expected, policy.Schedule.ExpectedDuration())
		}
	}
	switch eta := time.Duration(p.NextChangeETASeconds) * time.Second; {
	case p.Open:
		p.Earliest = o.now
	case eta > 0:
		p.Earliest = o.now.Add(eta).Truncate(time.Second) // the same whenever it is asked
	}
	return p, nil
}

// decide decides about a Machine, or knows what was decided about another one with the same policies.
func (o *Outlook) decide(r *record) Decision {
	key, plain := r.plainly()
	if !plain {
		return o.gate.decideNow(r)
	}
	d, ok := o.plain[key]
	if !ok {
		d = o.gate.decideNow(r)
		o.plain[key] = d
	}
	return d
}

// Spent is what counts against the budget of a policy.
type Spent struct {
	// Running updates, and Failed ones.
	Running, Failed int
	// Starts are those since the budget for starts was new, and Last is the last one; zero if there was none.
	Starts int
	Last   time.Time
}

// Spent returns what counts against the budget of a policy. Nothing counts against one without.
func (o *Outlook) Spent(p *Policy) Spent { return o.spent[p.NamespacedName] }

// Period returns since when starts count against maxStartsPerWindow at an instant, and when the next ones may; zero if that is not within the
// horizon. A policy without such a budget has no period, and no next one.
func (p *Policy) Period(at time.Time) (from, next time.Time) {
	from, until := p.period(at, p.Schedule.Widest())
	if until == nil {
		return from, time.Time{}
	}
	return from, until()
}

// OwnerOf names what has made a Machine: a MachineDeployment or a control plane. All is empty for one that stands alone.
func OwnerOf(m *clusterv1.Machine) (apiVersion, kind, name string) {
	o := ownerOf(m)
	return o.apiVersion, o.kind, o.name
}
