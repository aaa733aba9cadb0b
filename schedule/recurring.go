package schedule

import "time"

// length is how long an occurrence lasts. Days are of the calendar, and may have 23 or 25 hours; seconds are elapsed time.
type length struct {
	days     int
	midnight bool // the days end at midnight, not at the time of the day at which the occurrence starts
	seconds  int64
}

// longest is no less than what an occurrence may last.
func (l length) longest() int64 { return int64(l.days+1)*secondsPerDay + l.seconds }

// recurring is the set of the instants of a rule's occurrences, at a time of the day in a zone.
type recurring struct {
	rule    *Rule
	loc     *time.Location
	seconds int // of the day
	length  length
	except  map[Date]bool
}

var _ set = (*recurring)(nil)

// occurrence returns what starts on a day of the rule. A day that a zone left out, and a time that a gap moved beyond the end
// of its day, are empty.
func (r *recurring) occurrence(day Date) span {
	start := resolve(r.loc, day, r.seconds)
	if r.except[day] || !r.rule.admits(day, r.seconds, start) {
		return span{start, start}
	}
	if r.length.days == 0 {
		return span{start, start + r.length.seconds}
	}
	at := r.seconds
	if r.length.midnight {
		at = 0
	}
	return span{start, max(start, resolve(r.loc, day+Date(r.length.days), at)+r.length.seconds)}
}

// latest returns the last occurrence that is not empty and does not start after t, if it starts after limit or soon before.
// Occurrences of a rule start and end in the same order, so that none ends later of those that have started.
func (r *recurring) latest(t, limit int64) (span, Date, bool) {
	floor := dayOf(limit) - 2
	day := dayOf(t + maxOffset)
	for {
		var ok bool
		if day, ok = r.rule.Previous(day, floor); !ok {
			return span{}, 0, false
		}
		if s := r.occurrence(day); s.start <= t && s.start < s.end {
			return s, day, true
		}
		day--
	}
}

func (r *recurring) at(t, limit int64) (bool, int64) {
	next := dayOf(t - maxOffset)
	if s, day, ok := r.latest(t, t-r.length.longest()); ok {
		if t < s.end {
			return true, s.end
		}
		next = day + 1
	}
	last := dayOf(limit) + 2
	for {
		day, ok := r.rule.Next(next, last)
		if !ok {
			return false, max(limit, t) + 1
		}
		if s := r.occurrence(day); s.start > t && s.start < s.end {
			return false, s.start
		}
		next = day + 1
	}
}

func (r *recurring) before(t, limit int64) (bool, int64) {
	s, _, ok := r.latest(t-1, min(limit, t-r.length.longest()))
	switch {
	case !ok:
		return false, min(limit, t-1)
	case t <= s.end:
		return true, s.start
	default:
		return false, s.end
	}
}
