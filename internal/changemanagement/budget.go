package changemanagement

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/schedule"
)

// record is an update as budgets see it.
type record struct {
	key       types.NamespacedName
	uid       types.UID
	candidate *Candidate
	change    Change
	policies  []*Policy
	// running: work on the node has started and not ended.
	running bool
	// waiting for a policy.
	waiting bool
	failed  bool
	// unhealthy: a health gate does not let it start.
	unhealthy bool
	// worst is the worst action that the node has planned; empty if it has planned nothing.
	worst disruption.ActionType
	// starts of work on the node, whichever update it was for.
	starts []time.Time
	// configured is since when the Machine has the configuration that it has.
	configured time.Time
}

// exhausted is a budget that does not let an update start.
type exhausted struct {
	// message has limits and no counts: those change with each start, and each change of a message is a write.
	message string
	// limit says which it is, of which policy: also without counts.
	limit []string
	// eta is how long until it may; 0: when something ends.
	eta time.Duration
}

// tally is what counts against the budget of one policy.
type tally struct {
	running, starts, failed int
	// gone are those of the failed ones whose Machines are, and soaks those during whose soak a health gate did not hold.
	gone, soaks int
	last        time.Time
}

// start counts a start.
func (t *tally) start(at, since time.Time) {
	if !at.Before(since) {
		t.starts++
	}
	if at.After(t.last) {
		t.last = at
	}
}

// count counts what is under the policy, but for the update that asks.
func (p *Policy) count(b books, self types.NamespacedName, since time.Time) tally {
	var t tally
	for _, r := range b.records {
		if !selectedBy(r.policies, p) {
			continue
		}
		for _, start := range r.starts {
			t.start(start, since)
		}
		if r.key == self {
			continue
		}
		if r.running {
			t.running++
		}
		if r.failed {
			t.failed++
		}
	}
	b.ledgers[p.NamespacedName].count(&t, b.records, since)
	return t
}

func selectedBy(policies []*Policy, p *Policy) bool {
	for _, one := range policies {
		if one.NamespacedName == p.NamespacedName {
			return true
		}
	}
	return false
}

// slots returns how many updates may start now. With none, it says why. next is when the starts of a window are counted from zero again.
func (b Budget) slots(name string, now time.Time, t tally, next func() time.Time) (int, *exhausted) {
	free := 1 << 30
	if b.StopAfterFailures > 0 && t.failed >= b.StopAfterFailures {
		why := fmt.Sprintf("policy %s: %d updates or more have failed, so no more start (stopAfterFailures); look at them with: kubectl get machineupdates", name, b.StopAfterFailures)
		if t.gone > 0 {
			why += "; of some the Machine is gone: they are in the policy's status.ledger, and count no more once its annotation " + refitv1.FailuresSeenAnnotation + " has a later time"
		}
		if t.soaks > 0 {
			why += "; during the soak of some a health gate did not hold: they are in the policy's status.ledger.gateFailures, and count no more once its annotation " + refitv1.FailuresSeenAnnotation + " has a later time"
		}
		return 0, &exhausted{message: why, limit: []string{name, "stopAfterFailures", strconv.Itoa(b.StopAfterFailures), strconv.FormatBool(t.gone > 0), strconv.FormatBool(t.soaks > 0)}}
	}
	if b.MaxConcurrent > 0 {
		if free = min(free, b.MaxConcurrent-t.running); free <= 0 {
			return 0, &exhausted{
				message: fmt.Sprintf("policy %s: as many updates are under way as may be at once, %d (maxConcurrent)", name, b.MaxConcurrent),
				limit:   []string{name, "maxConcurrent", strconv.Itoa(b.MaxConcurrent)},
			}
		}
	}
	if b.MaxStartsPerWindow > 0 {
		if free = min(free, b.MaxStartsPerWindow-t.starts); free <= 0 {
			return 0, b.spent(name, now, next())
		}
	}
	if b.MinSpacing > 0 {
		next := t.last.Add(b.MinSpacing)
		if now.Before(next) {
			return 0, &exhausted{
				message: fmt.Sprintf("policy %s: updates start %s apart (minSpacing), and less has passed since the last one", name, b.MinSpacing),
				limit:   []string{name, "minSpacing", b.MinSpacing.String()},
				eta:     next.Sub(now),
			}
		}
		free = min(free, 1)
	}
	return free, nil
}

// spent is a window whose starts are used up, until the next one.
func (b Budget) spent(name string, now, next time.Time) *exhausted {
	why := &exhausted{
		message: fmt.Sprintf("policy %s: as many updates have started in this window as may, %d (maxStartsPerWindow)", name, b.MaxStartsPerWindow),
		limit:   []string{name, "maxStartsPerWindow", strconv.Itoa(b.MaxStartsPerWindow)},
	}
	if next.IsZero() {
		why.message += ", and there is no other window within 1000 days"
		return why
	}
	at := next.UTC().Format(time.RFC3339)
	why.message, why.limit = why.message+"; the next ones may at "+at, append(why.limit, at)
	why.eta = next.Sub(now)
	return why
}

// longestPeriod is how long starts count for a budget. A window that is longer has a budget each day.
const longestPeriod = 24 * time.Hour

// period returns since when starts count against maxStartsPerWindow, and when a change may start, by the schedule that is asked about it, after they
// have begun to count from zero again; zero if that is not within the horizon. It is the policy's own window, in which some changes may start, and which other policies may shorten for some Machines; of one that is longer than a day, and outside of
// windows, the day in the policy's time zone.
func (p *Policy) period(now time.Time, asked *schedule.Schedule) (from time.Time, next func() time.Time) {
	if p.Budget.MaxStartsPerWindow == 0 {
		return now, nil
	}
	var w schedule.Window
	for w = range schedule.Windows(now, now.Add(time.Second), p.Schedule.Widest()) {
		break
	}
	if known := !w.Start.IsZero() && !w.End.IsZero(); known && !now.Before(w.Start) && w.End.Sub(w.Start) <= longestPeriod {
		return w.Start, func() time.Time { return opens(asked, w.End) }
	}
	day, tomorrow := p.Schedule.Day(now)
	return day, func() time.Time { return opens(asked, tomorrow) }
}

// opens returns when a schedule is open from an instant on, zero if it is not within the horizon.
func opens(s *schedule.Schedule, from time.Time) time.Time {
	for w := range schedule.Windows(from, from.Add(schedule.DefaultHorizon), s) {
		if w.Start.After(from) {
			return w.Start
		}
		return from
	}
	return time.Time{}
}

// slots returns how many updates may start now under the policy. With none, it says why, and when one may that a schedule is asked about.
func (p *Policy) slots(now time.Time, self types.NamespacedName, b books, asked *schedule.Schedule) (int, *exhausted) {
	from, next := p.period(now, asked)
	return p.Budget.slots(p.Title(), now, p.count(b, self, from), next)
}

// budgets returns which budget does not let the update start, or nil. Among those that wait for the same budget the ones with the
// oldest configuration go first, so that none starves.
func budgets(now time.Time, d Decision, self record, b books) *exhausted {
	for _, p := range d.budgeted() {
		if !p.limited() {
			continue
		}
		free, why := p.slots(now, self.key, b, d.scheduleOf(p))
		if why != nil {
			return why
		}
		if ahead := p.ahead(now, self, b, free); ahead >= free {
			return &exhausted{
				message: fmt.Sprintf("policy %s: the updates that its budget lets start now are those of Machines whose configuration is older", p.Title()),
				limit:   []string{p.Title(), "older"},
			}
		}
	}
	return nil
}

// scheduleOf returns the schedule of a policy that was asked about the change.
func (d *Decision) scheduleOf(p *Policy) *schedule.Schedule {
	for _, s := range d.schedules {
		if s.Name() == p.Schedule.Name() {
			return s
		}
	}
	return p.Schedule.Widest()
}

// ahead counts the updates that wait, could start, and have an older configuration, up to a limit.
func (p *Policy) ahead(now time.Time, self record, b books, limit int) int {
	n, used := 0, map[types.NamespacedName]bool{}
	for _, r := range b.records {
		if n >= limit {
			break
		}
		if r.key == self.key || !r.waiting || !r.before(self) || !selectedBy(r.policies, p) {
			continue
		}
		// One that starts to measure again is not before others: it may be long.
		if !r.unhealthy && Decide(now, r.candidate, r.policies, r.change).Open && !p.elsewhere(now, r, b, used) {
			n++
		}
	}
	return n
}

// elsewhere reports whether an update that waits is held back by the budget of another policy: it must not take a slot of this one,
// perhaps for ever. Budgets that were looked at are in used.
func (p *Policy) elsewhere(now time.Time, r record, b books, used map[types.NamespacedName]bool) bool {
	for _, o := range r.policies {
		if !o.limited() || o.NamespacedName == p.NamespacedName {
			continue
		}
		full, ok := used[o.NamespacedName]
		if !ok {
			_, why := o.slots(now, r.key, b, o.Schedule)
			full = why != nil
			used[o.NamespacedName] = full
		}
		if full {
			return true
		}
	}
	return false
}

func (r record) before(o record) bool {
	if a, b := r.change.Permit.At, o.change.Permit.At; !a.Equal(b) && !a.IsZero() && !b.IsZero() { // in the order that somebody says
		return a.Before(b)
	}
	if !r.configured.Equal(o.configured) {
		return r.configured.Before(o.configured)
	}
	return r.key.String() < o.key.String()
}
