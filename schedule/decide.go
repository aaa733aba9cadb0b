package schedule

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Reason is why a decision is as it is.
type Reason string

// The reasons.
const (
	Open                  Reason = "Open"
	OutsideWindow         Reason = "OutsideWindow"
	Excluded              Reason = "Excluded"
	Paused                Reason = "Paused"
	Manual                Reason = "Manual" // nobody has permitted the change
	Overridden            Reason = "Overridden"
	NotBefore             Reason = "NotBefore" // the change says when it is wanted at the earliest
	NoWindowWithinHorizon Reason = "NoWindowWithinHorizon"
	NeverFits             Reason = "NeverFits"
	BudgetExhausted       Reason = "BudgetExhausted" // for those who count what has started; Decide does not
	DeadlinePassed        Reason = "DeadlinePassed"  // for those who know how long a change has waited; Decide does not
	GateFailed            Reason = "GateFailed"      // for those who ask health gates; Decide does not
	GateUnknown           Reason = "GateUnknown"     // the same: a gate has no answer
	InvalidPolicy         Reason = "InvalidPolicy"
)

// What stands in place of a number of seconds.
const (
	SecondsNone      = -1 // of NextChangeETASeconds: no window within the horizon, or paused
	SecondsUnbounded = -1 // of PermissiveRemainingSeconds: there is no end within the horizon
	SecondsInvalid   = -2 // of both: the policy is invalid
)

// DefaultHorizon is how far Decide looks.
const DefaultHorizon = 1000 * 24 * time.Hour

// Query is what is asked.
type Query struct {
	Now time.Time
	// ExpectedDuration is how long the update is expected to take. By default it is what the policies say.
	ExpectedDuration time.Duration
	// Horizon is how far ahead a window may start. By default it is DefaultHorizon.
	Horizon time.Duration

	// Bypass lets this one change start, RestrictiveUntil none until then, and PermissiveUntil all until then. The first of them wins: what
	// was stopped is started again by who takes the stop away, or for one change that they name.
	Bypass           bool
	PermissiveUntil  time.Time
	RestrictiveUntil time.Time
	// NotBefore is when the change is wanted at the earliest. Only Bypass passes it.
	NotBefore time.Time
}

// Window is [Start, End). A zero Start was longer ago than the horizon, a zero End is further ahead.
type Window struct {
	Start time.Time
	End   time.Time
}

// Decision is the answer.
type Decision struct {
	Open    bool
	Reason  Reason
	Message string
	// Short reports that there is a window now, or none that is long enough within the horizon: with another estimate of how long the change takes
	// it may be open.
	Short bool
	// NextChangeETASeconds is 0 when open, and counts to the next window that is long enough when closed.
	NextChangeETASeconds int64
	// PermissiveRemainingSeconds is what is left of the window, and 0 when closed.
	PermissiveRemainingSeconds int64
	// Window is the one that is open, or the next that will be long enough. Without bounds, there is none.
	Window *Window
	// Fits reports that the window is as long as the update is expected to take. With FitWarn one that is not is open, too.
	Fits bool
	// ClosedBy names the policies that close it, each with the reasons of its excludes that are in force, and for which changes it is open. Those that
	// close it only together are one.
	ClosedBy []string
	// Otherwise is why there is no window, where something else is the reason: a stop, or that the change is not wanted yet.
	Otherwise Reason
	// Required is how long a window must be, where that is why it is closed.
	Required time.Duration
}

// inquiry is a query in seconds of Unix, with the set that answers it.
type inquiry struct {
	Query
	schedules []*Schedule
	unix      int64
	horizon   int64
	open      set
	closedNow []*Schedule // filled when it is first asked for
}

// Decide reports whether changes may start now, by all the schedules that select a machine: all must be open. No schedule is
// open. Where schedules are Scoped, it is asked about those For the change.
func Decide(q Query, schedules ...*Schedule) Decision {
	for _, s := range schedules {
		if err := s.Err(q.Now); err != nil {
			return Decision{
				Reason: InvalidPolicy, NextChangeETASeconds: SecondsInvalid, PermissiveRemainingSeconds: SecondsInvalid, ClosedBy: []string{s.Name()},
				Message: fmt.Sprintf("policy %s is invalid, and so closed: %v", s.Name(), err),
			}
		}
	}
	if q.Bypass {
		return Decision{
			Open: true, Reason: Overridden, Fits: true, PermissiveRemainingSeconds: SecondsUnbounded,
			Message: "change management is bypassed for this change",
		}
	}
	return newInquiry(q, schedules).decide()
}

func newInquiry(q Query, schedules []*Schedule) *inquiry {
	if q.Horizon <= 0 {
		q.Horizon = DefaultHorizon
	}
	i := &inquiry{Query: q, schedules: schedules, unix: q.Now.Unix(), horizon: int64(q.Horizon / time.Second)}
	i.open = meet(schedules)
	if !q.PermissiveUntil.IsZero() {
		i.open = union{i.open, span{math.MinInt64, q.PermissiveUntil.Unix()}}
	}
	if !q.RestrictiveUntil.IsZero() {
		i.open = difference{from: i.open, without: span{math.MinInt64, ceilUnix(q.RestrictiveUntil)}}
	}
	if !q.NotBefore.IsZero() {
		i.open = difference{from: i.open, without: span{math.MinInt64, ceilUnix(q.NotBefore)}}
	}
	return i
}

func meet(schedules []*Schedule) set {
	if len(schedules) == 1 {
		return schedules[0].open
	}
	all := make(intersection, 0, len(schedules))
	for _, s := range schedules {
		all = append(all, s.open)
	}
	return all
}

// restrictive reports whether a policy lets nothing start, whoever permits it.
func restrictive(s *Schedule) bool { return s.Paused() && !s.Manual() }

func (i *inquiry) decide() Decision {
	permissive, stopped := i.unix < i.PermissiveUntil.Unix(), i.Now.Before(i.RestrictiveUntil)
	required, wanted := i.required(), i.wanted()
	some, short := false, false
	for from, last := i.unix, i.unix+i.horizon; ; {
		start, ok := firstIn(i.open, from, last)
		if !ok {
			break
		}
		some = true
		end, bounded := endOf(i.open, start, start+i.horizon)
		length := i.length(start, end, bounded)
		if length >= required || start < i.PermissiveUntil.Unix() {
			d := i.found(start, end, bounded, length >= wanted, permissive, stopped)
			d.Short = short
			return d
		}
		short = short || start == i.unix
		from = end
	}
	return i.none(some, stopped, required)
}

// none answers that there is no window that is as long as it must be; some reports whether there is one at all.
func (i *inquiry) none(some, stopped bool, required time.Duration) Decision {
	d := Decision{Reason: NoWindowWithinHorizon, NextChangeETASeconds: SecondsNone, Short: some}
	if some {
		d.Reason = NeverFits
	}
	if slices.ContainsFunc(i.schedules, (*Schedule).Manual) {
		d.Reason = Manual
	}
	if slices.ContainsFunc(i.schedules, restrictive) {
		d.Reason = Paused
	}
	by := i.closing(d.Reason)
	if d.ClosedBy = each(by, (*Schedule).others); d.Reason == NoWindowWithinHorizon && !i.alone(by) {
		d.ClosedBy = []string{strings.Join(d.ClosedBy, ", ")}
	}
	if d.Reason == NeverFits {
		d.Required = required
	}
	d.Message = i.explain(d.Reason, required, by)
	switch {
	case stopped:
		d.Reason, d.Otherwise, d.Message = Overridden, d.Reason, i.stopped(d.Message)
	case i.early():
		d.Reason, d.Otherwise, d.Message = NotBefore, d.Reason, i.wantedLater(d.Message)
	}
	return d
}

// early reports whether the change is not wanted yet.
func (i *inquiry) early() bool { return i.Now.Before(i.NotBefore) }

// found answers with a window that starts, or goes on, at start.
func (i *inquiry) found(start, end int64, bounded, fits, permissive, restrictive bool) Decision {
	d := Decision{Open: start == i.unix, Reason: Open, Fits: fits, NextChangeETASeconds: start - i.unix}
	begin, known := start, true
	if d.Open {
		begin, known = startOf(i.open, start, i.unix-i.horizon)
		d.PermissiveRemainingSeconds = SecondsUnbounded
		if bounded {
			d.PermissiveRemainingSeconds = end - i.unix
		}
	}
	if known || bounded {
		d.Window = new(newWindow(begin, known, end, bounded))
	}
	switch {
	case restrictive:
		d.Reason = Overridden
	case i.early():
		d.Reason = NotBefore
	case permissive:
		d.Reason = Overridden
	case !d.Open:
		d.Reason = i.whyClosed()
		if d.ClosedBy = each(i.shut(), i.toldOf); len(d.ClosedBy) == 0 {
			d.Required = i.required()
		}
	}
	d.Message = i.tell(d)
	return d
}

// length returns how long a window is from its start, or from now if that is later.
func (i *inquiry) length(start, end int64, bounded bool) time.Duration {
	if !bounded {
		return math.MaxInt64
	}
	from := time.Unix(start, 0)
	if i.Now.After(from) {
		from = i.Now
	}
	return time.Unix(end, 0).Sub(from)
}

// required returns how long a window must be, and wanted how long it should be.
func (i *inquiry) required() time.Duration { return i.duration(FitRequired) }

func (i *inquiry) wanted() time.Duration { return i.duration(FitRequired, FitWarn) }

func (i *inquiry) duration(fits ...Fit) time.Duration {
	var longest time.Duration
	for _, s := range i.schedules {
		for _, f := range fits {
			if s.fit != f {
				continue
			}
			d := s.expected
			if i.ExpectedDuration > 0 {
				d = i.ExpectedDuration
			}
			longest = max(longest, d)
		}
	}
	return longest
}

// shut returns the schedules that are closed now.
func (i *inquiry) shut() []*Schedule {
	if i.closedNow == nil {
		for _, s := range i.schedules {
			if in, _ := s.open.at(i.unix, i.unix); !in {
				i.closedNow = append(i.closedNow, s)
			}
		}
	}
	return i.closedNow
}

// whyClosed says Excluded if all policies that are closed are so by an exclude alone.
func (i *inquiry) whyClosed() Reason {
	reason := OutsideWindow
	for _, s := range i.shut() {
		if len(s.excludes) == 0 {
			return OutsideWindow // it is closed, and not by an exclude
		}
		if in, _ := s.permit.at(i.unix, i.unix); !in {
			return OutsideWindow
		}
		reason = Excluded
	}
	return reason
}

// toldOf returns what is told of a policy that is closed: the reasons of its excludes, and for which changes it is open.
func (i *inquiry) toldOf(s *Schedule) string {
	var why string
	for _, x := range s.excludes {
		if in, _ := x.set.at(i.unix, i.unix); in && x.Reason != "" {
			why += " (" + x.scope.after(x.Reason) + ")"
		}
	}
	return why + s.others()
}

// without returns the policies that have no window of their own within the horizon.
func (i *inquiry) without() []*Schedule {
	return i.those(i.never)
}

// alone reports whether the policies by which there is no window have none by themselves.
func (i *inquiry) alone(by []*Schedule) bool { return len(by) < 2 || slices.ContainsFunc(by, i.never) }

// never reports whether a policy has no window of its own within the horizon.
func (i *inquiry) never(s *Schedule) bool {
	_, ok := firstIn(s.open, i.unix, i.unix+i.horizon)
	return !ok
}

// each returns the names of policies, each with what is to be told of it.
func each(schedules []*Schedule, told func(*Schedule) string) []string {
	var names []string
	for _, s := range schedules {
		name := s.name
		if told != nil {
			name += told(s)
		}
		names = append(names, name)
	}
	return names
}

// named names policies, each with what is to be told of it.
func named(schedules []*Schedule, told func(*Schedule) string) string {
	names := each(schedules, told)
	for i := range names {
		names[i] = "policy " + names[i]
	}
	return strings.Join(names, ", ")
}
