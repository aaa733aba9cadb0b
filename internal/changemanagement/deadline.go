package changemanagement

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// defaultWarnBefore is how long before a deadline that is told, where a policy does not say.
const defaultWarnBefore = 7 * 24 * time.Hour

// Deadline is until when changes may wait for a policy.
type Deadline struct {
	// After is how long a change may wait; 0: for as long as that takes.
	After time.Duration
	// WarnBefore is how long before a deadline that is told.
	WarnBefore time.Duration
	// Opens has a change not wait for the policy's windows any more when its deadline has passed.
	Opens bool
	// Causes are the deadlines that count.
	Causes []refitv1.DeadlineCause
}

// compileDeadline reads the deadline of a policy; nil if it has none.
func compileDeadline(d *refitv1.Deadline) (*Deadline, error) {
	if d == nil {
		return nil, nil //nolint:nilnil // no deadline is an answer
	}
	out := &Deadline{WarnBefore: defaultWarnBefore, Opens: d.AtDeadline == refitv1.OpenAtDeadline, Causes: d.Causes}
	all := []refitv1.DeadlineCause{refitv1.WaitingDeadline, refitv1.CertificatesDeadline, refitv1.SkewDeadline, refitv1.EndOfLifeDeadline}
	var errs []error
	read := func(field, text string, into *time.Duration) {
		if text == "" {
			return
		}
		var err error
		if *into, err = parseDays(text); err != nil {
			errs = append(errs, &schedule.FieldError{Field: "deadline." + field, Err: err})
		}
	}
	read("after", d.After, &out.After)
	read("warnBefore", d.WarnBefore, &out.WarnBefore)
	switch d.AtDeadline {
	case "", refitv1.HoldAtDeadline, refitv1.OpenAtDeadline:
	default:
		errs = append(errs, &schedule.FieldError{Field: "deadline.atDeadline", Err: fmt.Errorf("%q is neither Hold nor Open", d.AtDeadline)})
	}
	for _, c := range d.Causes {
		if !slices.Contains(all, c) {
			errs = append(errs, &schedule.FieldError{Field: "deadline.causes", Err: fmt.Errorf("%q is none of Waiting, Certificates, Skew and EndOfLife", c)})
		}
	}
	if d.Causes == nil {
		out.Causes = all
	} else if slices.Contains(d.Causes, refitv1.WaitingDeadline) != (d.After != "") {
		errs = append(errs, &schedule.FieldError{Field: "deadline.after", Err: errors.New("it goes with Waiting among the causes, and neither is there without the other")})
	}
	return out, errors.Join(errs...)
}

// parseDays reads a duration, which may begin with days of 24 hours: 30d, 1d12h, 36h.
func parseDays(text string) (time.Duration, error) {
	var total time.Duration
	days, rest, found := strings.Cut(text, "d")
	if found {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration; write it as 30d or 36h", text)
		}
		total, text = time.Duration(n)*24*time.Hour, rest
	}
	if text != "" || !found {
		d, err := schedule.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%w, or with days as 30d", err)
		}
		total += d
	}
	if total <= 0 {
		return 0, errors.New("it is no time at all")
	}
	return total, nil
}

// Wait is what there is to know of how long a change may wait. Deadlines that it does not have are zero.
type Wait struct {
	// Since is since when the Machine has not got what it was to have. It is zero if nothing waits.
	Since time.Time
	// Certificates is when certificates end that the change renews.
	Certificates time.Time
	// EndOfLife is when the minor version ends that the change leads away from.
	EndOfLife time.Time
	// Behind reports that the change is the one without which the control plane can't go to its next minor version.
	Behind bool
}

// Due is a deadline of a change.
type Due struct {
	At     time.Time
	Cause  refitv1.DeadlineCause
	Policy string
	// Warn is from when on it is told.
	Warn time.Time
	// Opens reports that the change does not wait for the policy's windows then.
	Opens bool

	since time.Time
	// then is the deadline that opens, after one that does not.
	then *Due
}

// Near reports whether it is told already, and Passed whether it has passed.
func (d *Due) Near(now time.Time) bool { return d != nil && !now.Before(d.Warn) }

// Passed reports whether it has passed.
func (d *Due) Passed(now time.Time) bool { return d != nil && !now.Before(d.At) }

// String says what the deadline is. It stays the same while it comes near, and when it has passed.
func (d *Due) String() string {
	at, since := d.At.UTC().Format(time.RFC3339), d.since.UTC().Format(time.RFC3339)
	why := map[refitv1.DeadlineCause]string{
		refitv1.WaitingDeadline:      "the change has been wanted since " + since,
		refitv1.CertificatesDeadline: "it renews certificates that end soon after",
		refitv1.SkewDeadline:         "the next upgrade of the control plane has to wait for it, and it has been wanted since " + since,
		refitv1.EndOfLifeDeadline:    "the version that the Machine runs is not supported from then on",
	}[d.Cause]
	then := "it goes on to wait then, so somebody has to let it start"
	switch {
	case d.Opens:
		then = "from then on it does not wait for windows of the policy (atDeadline: Open)"
	case d.then != nil:
		then = fmt.Sprintf("it goes on to wait then, and from its deadline at %s (%s) on it does not wait for windows of the policy (atDeadline: Open)", d.then.At.UTC().Format(time.RFC3339), d.then.Cause)
	}
	return fmt.Sprintf("policy %s has a deadline for this change at %s (%s): %s; %s", d.Policy, at, d.Cause, why, then)
}

// due returns the first deadline of a change under the policy; nil if there is none.
func (p *Policy) due(w Wait) *Due {
	all := p.dues(w)
	if len(all) == 0 {
		return nil
	}
	first := &all[0]
	if i := slices.IndexFunc(all, func(d Due) bool { return d.Opens }); i > 0 {
		first.then = &all[i]
	}
	return first
}

// dues returns the deadlines of a change under the policy, the first of them first.
func (p *Policy) dues(w Wait) []Due {
	d := p.Deadline
	if d == nil || w.Since.IsZero() {
		return nil
	}
	at := map[refitv1.DeadlineCause]time.Time{}
	if d.After > 0 {
		at[refitv1.WaitingDeadline] = w.Since.Add(d.After)
	}
	if !w.Certificates.IsZero() { // they are to be renewed before, and not when they have ended
		at[refitv1.CertificatesDeadline] = w.Certificates.Add(-d.WarnBefore)
	}
	if !w.EndOfLife.IsZero() {
		at[refitv1.EndOfLifeDeadline] = w.EndOfLife
	}
	if w.Behind { // nobody knows when the control plane goes on: what is told before is told from the beginning
		at[refitv1.SkewDeadline] = w.Since.Add(d.WarnBefore)
	}
	var all []Due
	for cause, instant := range at {
		if d.counts(cause, instant) {
			all = append(all, Due{
				At: instant, Cause: cause, Policy: p.Title(), Warn: d.warn(cause, instant, w.Since), since: w.Since,
				// Whoever writes in the namespace says when a version is no longer supported there: that opens no policy that they don't.
				Opens: d.Opens && (!p.Firm || cause == refitv1.WaitingDeadline),
			})
		}
	}
	slices.SortFunc(all, func(a, b Due) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Cause, b.Cause)) })
	return all
}

// counts reports whether a deadline counts. A change may be wanted in the year 9999, and no later time can be written.
func (d *Deadline) counts(cause refitv1.DeadlineCause, at time.Time) bool {
	return slices.Contains(d.Causes, cause) && !at.After(endOfTime)
}

// warn returns from when on a deadline is told. A wait that has not begun yet is nothing to tell of.
func (d *Deadline) warn(cause refitv1.DeadlineCause, at, since time.Time) time.Time {
	told, waits := at.Add(-d.WarnBefore), cause == refitv1.WaitingDeadline || cause == refitv1.SkewDeadline
	if waits && told.Before(since) {
		return since
	}
	return told
}

// opened returns the deadline by which the policy's windows hold a change no longer; nil if there is none yet.
func (p *Policy) opened(now time.Time, w Wait) *Due {
	all := p.dues(w)
	i := slices.IndexFunc(all, func(d Due) bool { return d.Opens && d.Passed(now) })
	if i < 0 || p.Schedule.Paused() || p.late == nil {
		return nil
	}
	return &all[i]
}

// firstDue returns the first deadline of a change under policies; nil if there is none.
func firstDue(policies []*Policy, w Wait) *Due {
	var first *Due
	for _, p := range policies {
		if due := p.due(w); due != nil && (first == nil || due.At.Before(first.At)) {
			first = due
		}
	}
	return first
}

// overdue decides once more where windows hold back a change whose deadline under their policies has passed: without the permits of these.
func (d *Decision) overdue(q schedule.Query, c Change) {
	if d.Due = firstDue(d.Policies, c.Wait); d.Due == nil {
		return
	}
	d.Near = d.Due.Near(q.Now)
	for _, p := range d.Policies {
		for _, due := range p.dues(c.Wait) {
			d.look(q.Now, due.Warn)
			d.look(q.Now, due.At)
		}
	}
	schedules, passed := d.late(q.Now, c)
	if d.Open || len(passed) == 0 {
		return
	}
	late := schedule.Decide(q, schedules...)
	d.schedules = schedules // also where it makes no difference: for another change, of which the node has not said yet what it is, it may
	if !late.Open && later(late.NextChangeETASeconds, d.NextChangeETASeconds) == late.NextChangeETASeconds {
		return // it makes no difference
	}
	d.limits = append(d.limits, passed...)
	late.Message = fmt.Sprintf("the deadline of this change has passed under policy %s; %s", strings.Join(passed, ", "), late.Message)
	if late.Open && late.Reason == schedule.Open {
		late.Reason = schedule.DeadlinePassed
	}
	d.Decision = late
}

// late returns the schedules that are asked about a change whose deadlines have passed, and under which policies they have.
func (d *Decision) late(now time.Time, c Change) (schedules []*schedule.Schedule, passed []string) {
	for _, p := range d.Policies {
		if selectedBy(d.lifted, p) || p.Schedule.Manual() && c.Permit.given() && !p.Firm {
			continue
		}
		s := p.ScheduleFor(c)
		if due := p.opened(now, c.Wait); due != nil {
			s = p.late.For(c.Class)
			passed = append(passed, fmt.Sprintf("%s (%s, at %s)", p.Title(), due.Cause, due.At.UTC().Format(time.RFC3339)))
		}
		schedules = append(schedules, s)
	}
	return schedules, passed
}
