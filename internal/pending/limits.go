package pending

import (
	"container/heap"
	"time"

	"github.com/capi-refit/refit/internal/changemanagement"
)

// lane lets so many changes be under way at once.
type lane struct {
	wide int
	ends ends
}

// free returns from when on another change can be under way; zero: at any time.
func (l *lane) free() time.Time {
	if len(l.ends) < l.wide {
		return time.Time{}
	}
	return l.ends[0]
}

// take has a change be under way until an instant. Of those that are, the first ends for it if the lane is full.
func (l *lane) take(until time.Time) {
	if len(l.ends) >= l.wide {
		heap.Pop(&l.ends)
	}
	heap.Push(&l.ends, until)
}

// ends is a heap of instants.
type ends []time.Time

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].Before(e[j]) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *ends) Push(x any) { *e = append(*e, x.(time.Time)) }

// Pop implements heap.Interface.
func (e *ends) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

// lane returns the lane of a name, which is so wide.
func (f *forecast) lane(name string, wide int) *lane {
	l, ok := f.lanes[name]
	if !ok {
		l = &lane{wide: max(wide, 1)}
		f.lanes[name] = l
	}
	return l
}

// budget is that of a policy, as it is spent.
type budget struct {
	policy *changemanagement.Policy
	// stopped tells that nothing starts before somebody has looked at what has failed.
	stopped bool
	lane    *lane // nil: no limit
	last    time.Time
	// starts are those of periods, by their beginning, and from and until the last one that was asked for.
	starts      map[int64]int
	from, until time.Time
}

func (f *forecast) budgetOf(p *changemanagement.Policy) *budget {
	if b, ok := f.budgets[p.String()]; ok {
		return b
	}
	b := &budget{policy: p, starts: map[int64]int{}}
	f.budgets[p.String()] = b
	if p.Budget == (changemanagement.Budget{}) {
		return b
	}
	spent := f.spent(p)
	b.stopped = p.Budget.StopAfterFailures > 0 && spent.Failed >= p.Budget.StopAfterFailures
	b.last = spent.Last
	if p.Budget.MaxStartsPerWindow > 0 {
		b.period(f.now)
		b.starts[b.from.Unix()] = spent.Starts
		b.until = time.Time{} // outside of windows a period is the day, in which one may open
	}
	if p.Budget.MaxConcurrent > 0 {
		b.lane = &lane{wide: p.Budget.MaxConcurrent}
		for range spent.Running {
			b.lane.take(f.now.Add(max(p.Schedule.ExpectedDuration(), time.Minute)))
		}
	}
	return b
}

// period looks for the period of an instant within a window, which is asked for often.
func (b *budget) period(at time.Time) {
	if b.until.IsZero() || at.Before(b.from) || !at.Before(b.until) {
		b.from, b.until = b.policy.Period(at)
	}
}

// next returns when the budget lets another change start, from an instant on.
func (b *budget) next(t time.Time) (time.Time, bool) {
	if b.stopped {
		return t, false
	}
	if b.lane != nil {
		t = latest(t, b.lane.free())
	}
	if spacing := b.policy.Budget.MinSpacing; spacing > 0 && !b.last.IsZero() {
		t = latest(t, b.last.Add(spacing))
	}
	if most := b.policy.Budget.MaxStartsPerWindow; most > 0 {
		if b.period(t); b.starts[b.from.Unix()] >= most {
			return b.until, !b.until.IsZero()
		}
	}
	return t, true
}

// take counts a start.
func (b *budget) take(start, end time.Time) {
	if b.lane != nil {
		b.lane.take(end)
	}
	b.last = latest(b.last, start)
	if b.policy.Budget.MaxStartsPerWindow > 0 {
		b.period(start)
		b.starts[b.from.Unix()]++
	}
}
