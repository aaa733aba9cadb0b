package changemanagement

import (
	"context"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/schedule"
)

// Replacing decides about one change that replaces Machines, as of now. It is for one goroutine, and one edit.
type Replacing struct {
	hooks *Hooks
	class schedule.Class
	// known are decisions about Machines with the same policies and no overrides.
	known map[string]Decision
}

// Replacing returns what decides about a change.
func (h *Hooks) Replacing(class schedule.Class) *Replacing {
	return &Replacing{hooks: h, class: class, known: map[string]Decision{}}
}

// Of decides whether a Machine may be replaced now, by the policies that select it. It goes by windows as a whole: jitter spreads the starts of what an edit
// sets off, and is no reason against the edit. The Machine is shared and is not changed.
func (r *Replacing) Of(ctx context.Context, m *clusterv1.Machine) (Decision, error) {
	candidate, err := (Candidates{r.hooks.Client}).Machine(ctx, m)
	if err != nil {
		return Decision{}, err
	}
	policies, err := r.hooks.Policies.Select(candidate)
	if err != nil {
		return Decision{}, err
	}
	change := Change{Class: r.class, Unspread: true}
	if len(candidate.Overrides) > 0 {
		return Decide(r.hooks.Clock.Now(), candidate, policies, change), nil
	}
	key := strings.Join(names(policies), "\n")
	d, ok := r.known[key]
	if !ok {
		d = Decide(r.hooks.Clock.Now(), candidate, policies, change)
		r.known[key] = d
	}
	return d, nil
}

// Unreadable returns why a policy can't be read as of the decision's instant, or nil.
func (r *Replacing) Unreadable(p *Policy) error {
	if p.Err != nil {
		return p.Err
	}
	return p.Schedule.Err(r.hooks.Clock.Now())
}
