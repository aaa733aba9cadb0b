package changemanagement

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

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
func (b *books) count(ctx context.Context, p *Policy, self types.NamespacedName, since time.Time) (tally, error) {
	var t tally
	if c := b.counters[p.NamespacedName]; c != nil {
		asks := b.of(self.Name)
		if asks != nil && !selectedBy(asks.policies, p) {
			asks = nil
		}
		t = c.tally(asks, since)
	}
	l, err := b.ledger(ctx, p)
	if err != nil {
		return t, err
	}
	l.count(&t, b, since)
	return t, nil
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
func (b *books) slots(ctx context.Context, now time.Time, p *Policy, self types.NamespacedName, asked *schedule.Schedule) (int, *exhausted, error) {
	from, next := p.period(now, asked)
	t, err := b.count(ctx, p, self, from)
	if err != nil {
		return 0, nil, err
	}
	free, why := p.Budget.slots(p.Title(), now, t, next)
	return free, why, nil
}

// budgets returns which budget does not let the update start, or nil. Among those that wait for the same budget the ones with the
// oldest configuration go first, so that none starves.
func (b *books) budgets(ctx context.Context, now time.Time, d *Decision, self *record) (*exhausted, error) {
	for _, p := range d.budgeted() {
		if !p.limited() {
			continue
		}
		free, why, err := b.slots(ctx, now, p, self.key, d.scheduleOf(p))
		if err != nil || why != nil {
			return why, err
		}
		ahead, err := b.ahead(ctx, now, p, self, free)
		if err != nil {
			return nil, err
		}
		if ahead >= free {
			return &exhausted{
				message: fmt.Sprintf("policy %s: the updates that its budget lets start now are those of Machines whose configuration is older", p.Title()),
				limit:   []string{p.Title(), "older"},
			}, nil
		}
	}
	return nil, nil
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
func (b *books) ahead(ctx context.Context, now time.Time, p *Policy, self *record, limit int) (int, error) {
	c := b.counters[p.NamespacedName]
	if c == nil {
		return 0, nil
	}
	n, used := 0, map[types.NamespacedName]bool{}
	for r := range c.waiting {
		if n >= limit {
			break
		}
		if r.key == self.key || !r.before(self) {
			continue
		}
		// One that starts to measure again is not before others: it may be long.
		could, err := b.couldStart(ctx, now, r)
		if err != nil {
			return n, err
		}
		if !could {
			continue
		}
		held, err := b.elsewhere(ctx, now, p, r, used)
		if err != nil {
			return n, err
		}
		if !held {
			n++
		}
	}
	return n, nil
}

// elsewhere reports whether an update that waits is held back by the budget of another policy: it must not take a slot of this one,
// perhaps for ever. Budgets that were looked at are in used.
func (b *books) elsewhere(ctx context.Context, now time.Time, p *Policy, r *record, used map[types.NamespacedName]bool) (bool, error) {
	for _, o := range r.policies {
		if !o.limited() || o.NamespacedName == p.NamespacedName {
			continue
		}
		full, ok := used[o.NamespacedName]
		if !ok {
			_, why, err := b.slots(ctx, now, o, r.key, o.Schedule)
			if err != nil {
				return false, err
			}
			full = why != nil
			used[o.NamespacedName] = full
		}
		if full {
			return true, nil
		}
	}
	return false, nil
}
