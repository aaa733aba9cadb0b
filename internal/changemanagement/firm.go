package changemanagement

import (
	"fmt"
	"slices"
	"strings"
	"time"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// firmOf returns the policies that no override of an object in a namespace opens.
func firmOf(policies []*Policy) []*Policy {
	var firm []*Policy
	for _, p := range policies {
		if p.Firm {
			firm = append(firm, p)
		}
	}
	return firm
}

// maxOverrideOf returns how far ahead an override of an object in a namespace may lie: the shortest of the policies that it may open.
func maxOverrideOf(policies []*Policy) time.Duration {
	limit, known := defaultMaxOverride, false
	for _, p := range policies {
		if !p.Firm && (!known || p.MaxOverride < limit) {
			limit, known = p.MaxOverride, true
		}
	}
	return limit
}

// atLeast returns how long a change is expected to take: what was measured under policies of the namespace, and not less than those of the platform
// expect, since who may write the status of a policy could have been measured what they like.
func atLeast(measured time.Duration, policies []*Policy) time.Duration {
	if measured == 0 {
		return 0
	}
	for _, p := range policies {
		if p.Namespaces != nil {
			measured = max(measured, p.Schedule.ExpectedDuration())
		}
	}
	return measured
}

// ownForce is what the overrides of policies themselves come to.
type ownForce struct {
	// lifted are the policies that are opened, by is what opens them, and passed are the stops of their own that it passes.
	lifted     []*Policy
	by, passed Overrides
	// stops are what closes policies.
	stops   []force
	ignored []string
	// said are those that have a say.
	said Overrides
}

// ownOverrides returns what policies' own overrides come to for a change. They open no policy that is invalid.
func ownOverrides(now time.Time, policies []*Policy, digest string) ownForce {
	var all ownForce
	for _, p := range policies {
		if len(p.Own) == 0 {
			continue
		}
		f := p.Own.at(now, digest, p.MaxOverride)
		all.ignored, all.said = append(all.ignored, f.ignored...), append(all.said, f.said()...)
		stopped := now.Before(f.restrictedTo)
		switch {
		case p.Schedule.Err(now) == nil && (f.bypass || !stopped && now.Before(f.permissiveUntil)):
			all.lifted = append(all.lifted, p)
			by, passed := f.deciding()
			all.by, all.passed = append(all.by, by...), append(all.passed, passed...)
		case stopped:
			all.stops = append(all.stops, force{restrictedTo: f.restrictedTo, by: f.of(refitv1.RestrictiveUntilAnnotation)})
		}
	}
	return all
}

// stop adds what closes policies by themselves.
func (f *force) stop(stops []force) {
	for _, s := range stops {
		f.by = append(f.by, s.by...)
		if s.restrictedTo.After(f.restrictedTo) {
			f.restrictedTo = s.restrictedTo
		}
	}
}

// liftedBy notes by which overrides of their own policies are open.
func (d *Decision) liftedBy(own ownForce, others bool) {
	if len(own.by) == 0 {
		return
	}
	told := make([]string, len(own.by))
	for i, o := range own.by {
		told[i] = o.passing(own.passed)
	}
	if !others && d.Reason == schedule.Open {
		d.Message = ""
	}
	d.By, d.Passed = append(slices.Clone(d.By), own.by...), append(slices.Clone(d.Passed), own.passed...)
	d.Message = strings.TrimPrefix(d.Message+"; "+strings.Join(told, "; "), "; ")
}

// budgeted returns the policies whose budgets and jitter count for a decision: those that no override lets it pass.
func (d *Decision) budgeted() []*Policy {
	of := d.Policies
	if d.Reason == schedule.Overridden {
		of = d.firm
	}
	if len(d.lifted) == 0 {
		return of
	}
	return slices.DeleteFunc(slices.Clone(of), func(p *Policy) bool { return selectedBy(d.lifted, p) })
}

// keptBy returns the decision of firm policies where an override of an object in the namespace opens the others.
func (d *Decision) keptBy(firm Decision) Decision {
	firm.Policies, firm.HeldBy = d.Policies, d.HeldBy
	firm.said = append(slices.Clip(firm.said), d.By...)
	for _, o := range d.By {
		firm.Message += fmt.Sprintf("; %s does not open %s", o, strings.Join(quoted(d.HeldBy), ", "))
	}
	return firm
}

// holding returns which of firm policies hold a change back by themselves; all of them if they do so only together.
func holding(now time.Time, s *Candidate, firm []*Policy, c Change) []*Policy {
	var some []*Policy
	for _, p := range firm {
		if d := decide(now, s, []*Policy{p}, c); !d.Open {
			some = append(some, p)
		}
	}
	if len(some) == 0 {
		return firm
	}
	return some
}

func quoted(policies []*Policy) []string {
	out := make([]string, len(policies))
	for i, p := range policies {
		out[i] = "policy " + p.Title()
	}
	return out
}

// HowToBypassFirm returns how to let a change start that firm policies hold back; empty if there are none.
func (d *Decision) HowToBypassFirm(digest string) string {
	if len(d.HeldBy) == 0 {
		return ""
	}
	what := make([]string, len(d.HeldBy))
	for i, p := range d.HeldBy {
		what[i] = p.Name
	}
	return fmt.Sprintf("annotations in the namespace don't open the platform's policies; who may change them can let this one change start: kubectl annotate %s %s %s=%s",
		clusterPlural, strings.Join(what, " "), refitv1.BypassAnnotation, digest)
}
