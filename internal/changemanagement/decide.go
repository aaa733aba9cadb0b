package changemanagement

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/capi-refit/refit/schedule"
)

// Change is what is to be decided about.
type Change struct {
	// Digest identifies it, for a bypass.
	Digest string
	// Expected is how long it was measured to take. 0: not known; then the policies say.
	Expected time.Duration
	// Permit is somebody's permission, for policies that are Manual.
	Permit Permit
	// Class is what the change is, as far as that is known, for policies whose permits and excludes are not for all changes.
	Class schedule.Class
	// Wait is how long it may wait, for policies with a deadline.
	Wait Wait
	// Whichever asks for the change, whatever its Class, that the policies let start first.
	Whichever bool
	// Unspread asks about windows as a whole: jitter does not close them.
	Unspread bool
}

// Decision is whether a change may start, by the policies that select the Machine, budgets aside.
type Decision struct {
	schedule.Decision
	Policies []*Policy
	// By are the overrides that made it, and Passed the stops that it passes: only a bypass of this very change does.
	By, Passed Overrides
	// bypassed reports that a bypass of this very change made it, at an object in the namespace. One at a policy of the platform opens that alone.
	bypassed bool
	// Permit is the permission by which policies that are Manual let it start; none if there are no such policies.
	Permit Permit
	// started tells that it has let an update start.
	started func(context.Context)
	// Stopped reports that people want no changes now: by an override, by a policy that is restrictive, or since the change is wanted later.
	Stopped bool
	// Probe reports that it is open, or will be, for one update of the kind in each window, so that how long they take is measured again.
	Probe bool
	// measuredWhy is why, for a Probe.
	measuredWhy string
	// firm are those of the policies that no override of an object in the namespace opens. They hold a change also when such an override opens the others.
	firm []*Policy
	// lifted are those that an override of their own opens: they are not asked.
	lifted []*Policy
	// HeldBy are the firm policies that hold it back, whatever is annotated in the namespace.
	HeldBy []*Policy
	// Frees reports that it is another update whose end opens it, or a health gate, so that nobody knows when.
	Frees bool
	// Undecided reports that it is closed since it is not known what the change takes: a window is open, and for some changes only.
	Undecided bool
	// LookIn is how long until something else is to be told or done, though no window opens: a deadline comes near or passes, or the change is
	// Undecided. 0: nothing is.
	LookIn time.Duration
	// Due is the first deadline of the change; nil if there is none. Near reports that it is told.
	Due  *Due
	Near bool
	// schedules are those that were asked.
	schedules []*schedule.Schedule
	// said are the overrides that have a say, and limits says what else closes it: jitter, a budget, a health gate.
	said   Overrides
	limits []string
}

// Decide reports whether a change of a Machine may start, by the policies that select it. An override of an object in the namespace that lets it start is
// none for firm policies: they are asked without it.
func Decide(now time.Time, s *Candidate, policies []*Policy, c Change) Decision {
	d := decide(now, s, policies, c)
	firm := firmOf(policies)
	if len(firm) == 0 || d.Open && d.Reason != schedule.Overridden {
		return d
	}
	without := *s
	without.Overrides = nil
	by := decide(now, &without, firm, c)
	if !by.Open {
		d.HeldBy = holding(now, &without, firm, c)
	}
	switch {
	case !d.Open:
		return d
	case !by.Open:
		return d.keptBy(by)
	}
	d.firm, d.Window = firm, by.Window
	d.PermissiveRemainingSeconds = by.PermissiveRemainingSeconds
	return d
}

// decide decides by what is annotated at the Machine and at what it belongs to, and at the policies themselves.
func decide(now time.Time, s *Candidate, policies []*Policy, c Change) Decision {
	c.Expected = atLeast(c.Expected, policies)
	own := ownOverrides(now, policies, c.Digest)
	schedules, permitted := asked(policies, own.lifted, c)
	f := s.Overrides.at(now, c.Digest, maxOverrideOf(policies))
	f.stop(own.stops)
	q := schedule.Query{
		Now: now, ExpectedDuration: c.Expected,
		Bypass: f.bypass, PermissiveUntil: f.permissiveUntil, RestrictiveUntil: f.restrictedTo, NotBefore: f.notBefore,
	}
	d := Decision{Decision: ask(q, policies, schedules), Policies: policies, Permit: permitted, schedules: schedules, lifted: own.lifted}
	d.said = append(f.said(), own.said...)
	d.overdue(q, c)
	d.undecided(now, c)
	if d.Open && permitted.given() {
		d.Message = permitted.before(d.Message, len(schedules) > 0)
	}
	if d.Reason == schedule.Open && !c.Unspread {
		d.spread(now, s, c)
	}
	d.tellForce(f)
	if d.Open {
		d.liftedBy(own, len(schedules) > 0 || permitted.given())
	}
	d.Stopped = !d.Open && (now.Before(f.restrictedTo) || now.Before(f.notBefore) || slices.ContainsFunc(schedules, (*schedule.Schedule).Paused))
	for _, text := range append(f.ignored, own.ignored...) {
		d.Message += "; " + text
	}
	return d
}

// tellForce tells which overrides have made the decision, or when the change is wanted.
func (d *Decision) tellForce(f force) {
	if d.Reason == schedule.Overridden {
		d.By, d.Passed = f.deciding()
		d.bypassed = f.bypass
		for _, o := range d.By {
			d.Message += "; " + d.told(o)
		}
	}
	if d.Reason == schedule.NotBefore {
		for _, o := range f.wanted {
			d.Message += "; " + o.String()
		}
	}
}

// asked returns the schedules that are asked about a change, and the permission by which policies that are manual need not be asked.
func asked(policies, lifted []*Policy, c Change) ([]*schedule.Schedule, Permit) {
	schedules := make([]*schedule.Schedule, 0, len(policies))
	permitted := Permit{}
	for _, p := range policies {
		switch {
		case selectedBy(lifted, p):
		case p.Schedule.Manual() && c.Permit.given() && !p.Firm:
			permitted = c.Permit
		default:
			schedules = append(schedules, p.ScheduleFor(c))
		}
	}
	return schedules, permitted
}

// ScheduleFor returns the policy's schedule as it is for a change.
func (p *Policy) ScheduleFor(c Change) *schedule.Schedule {
	if c.Whichever {
		return p.Schedule.Widest()
	}
	return p.Schedule.For(c.Class)
}

// look has somebody look again at an instant, unless that is past.
func (d *Decision) look(now, at time.Time) {
	if in := at.Sub(now); in > 0 && (d.LookIn == 0 || in < d.LookIn) {
		d.LookIn = in
	}
}

// undecided finds out whether a decision is closed only since it is not known what the change takes, or when it will be.
func (d *Decision) undecided(now time.Time, c Change) {
	if d.Open || c.Class.Disruption != "" || c.Whichever || !d.Scoped() {
		return
	}
	widest := make([]*schedule.Schedule, len(d.schedules))
	for i, s := range d.schedules {
		widest[i] = s.Widest()
	}
	for w := range schedule.Windows(now, now.Add(schedule.DefaultHorizon), widest...) {
		d.Undecided = !now.Before(w.Start)
		d.look(now, w.Start)
		break
	}
}

// told returns an override as people read it, with the stops that it passes.
func (d *Decision) told(o Override) string { return o.passing(d.Passed) }

// passing returns an override as people read it, with stops that it passes.
func (o Override) passing(stops Overrides) string {
	text := o.String()
	for _, stop := range stops {
		text += ", which passes " + stop.String()
	}
	return text
}

const (
	// closedFor is how long it is known that policies have no window together.
	closedFor = 5 * time.Second
	// closedMost is for how many policies, with a policy before them, that is known.
	closedMost = 64
)

// together are the schedules of policies, as they are for a change, and what they are asked.
type together struct {
	schedules [32]*schedule.Schedule
	expected  time.Duration
}

// closedSince is a decision and when it was made.
type closedSince struct {
	schedule.Decision
	at time.Time
}

// plain reports whether no override has a say.
func plain(q schedule.Query) bool {
	return !q.Bypass && q.PermissiveUntil.IsZero() && q.RestrictiveUntil.IsZero() && q.NotBefore.IsZero()
}

// ask asks the schedules of policies, or knows that they have no window together. To see that takes a walk over all of the
// horizon, and many Machines have the same policies.
func ask(q schedule.Query, policies []*Policy, schedules []*schedule.Schedule) schedule.Decision {
	key := together{expected: q.ExpectedDuration}
	if !plain(q) || len(schedules) < 2 || len(schedules) < len(policies) || copy(key.schedules[:], schedules) < len(schedules) {
		return schedule.Decide(q, schedules...)
	}
	if v, ok := policies[0].closed.Get(key); ok {
		known, _ := v.(closedSince)
		if age := q.Now.Sub(known.at); age >= 0 && age < closedFor {
			return known.Decision
		}
	}
	d := schedule.Decide(q, schedules...)
	if !d.Open && d.NextChangeETASeconds == schedule.SecondsNone {
		policies[0].closed.Add(key, closedSince{d, q.Now})
	}
	return d
}

// spread closes a window that has opened for as long as the policies' jitter takes for this Machine.
func (d *Decision) spread(now time.Time, s *Candidate, c Change) {
	if d.Window == nil || d.Window.Start.IsZero() {
		return
	}
	// What starts later must still fit, by all policies.
	expected := c.Expected
	if expected == 0 {
		for _, p := range d.Policies {
			expected = max(expected, p.Schedule.ExpectedDuration())
		}
	}
	start := d.Window.Start
	for _, p := range d.budgeted() {
		if at := d.Window.Start.Add(p.delay(s, *d.Window, expected)); at.After(start) {
			start = at
		}
	}
	if !now.Before(start) {
		return
	}
	d.Open, d.Reason, d.PermissiveRemainingSeconds = false, schedule.OutsideWindow, 0
	d.NextChangeETASeconds = int64((start.Sub(now) + time.Second - 1) / time.Second)
	at := start.UTC().Format(time.RFC3339)
	d.limits = append(d.limits, "jitter", at)
	d.Message = "the window is open, and the policies spread its starts (jitter): this Machine's is at " + at
}

// latest is how long before an update would no longer fit jitter has it start: whoever is asked then may be late.
const latest = time.Minute

// delay returns how long after its start a window opens for a Machine: a part of the jitter, the same whenever it is asked. In a
// window that is too short for all of the jitter, each part is as much shorter: so it moves only a little with what is expected.
func (p *Policy) delay(s *Candidate, w schedule.Window, expected time.Duration) time.Duration {
	most := p.Jitter
	if !w.End.IsZero() {
		most = min(most, w.End.Sub(w.Start)-expected-latest)
	}
	if most < time.Second {
		return 0
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d", s.UID, w.Start.Unix()) // a hash takes everything
	jitter := uint64(p.Jitter / time.Second)
	return time.Duration(h.Sum64()%jitter*uint64(most/time.Second)/jitter) * time.Second
}

// names of policies, for people.
func names(policies []*Policy) []string {
	out := make([]string, len(policies))
	for i, p := range policies {
		out[i] = p.Title()
	}
	return out
}

// Special reports whether somebody has let it be open: by an override, or by their permission.
func (d *Decision) Special() bool { return len(d.By) > 0 || d.Permit.given() }

// TellStart logs and counts that it has let an update start, where Admit was not asked.
func (d *Decision) TellStart(ctx context.Context) {
	if d.started != nil {
		d.started(ctx)
	}
}

// KeepsOff reports whether refit does not even look at the node: a policy holds all, or what it would hold can't be told. While a window is open for
// some changes refit looks: only the node can say whether this is one of them.
func (d *Decision) KeepsOff() bool {
	holdsAll := func(p *Policy) bool { return p.HoldAll }
	return d.Reason == schedule.InvalidPolicy || !d.Undecided && slices.ContainsFunc(d.Policies, holdsAll)
}

// Scoped reports whether what the change is has a say.
func (d *Decision) Scoped() bool {
	return slices.ContainsFunc(d.schedules, (*schedule.Schedule).Scoped)
}

// HoldsAll reports whether what does not disturb the node is held back, too: as KeepsOff, or people have stopped changes.
func (d *Decision) HoldsAll() bool {
	return d.Stopped || d.KeepsOff()
}
