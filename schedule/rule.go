package schedule

import "time"

// Frequency is the length of a rule's period.
type Frequency int

// The frequencies that a rule can have. Finer ones would not be windows.
const (
	Daily Frequency = iota + 1
	Weekly
	Monthly
	Yearly
)

// lastYear bounds the search for the last of COUNT occurrences; a rule with COUNT ends there at the latest.
const lastYear = 2400

// weekdayRule is one entry of BYDAY. An nth of 0 means every such weekday.
type weekdayRule struct {
	nth     int
	weekday time.Weekday
}

// Rule is a recurrence of days, by the subset of RFC 5545 that schedules need. It yields days, not instants: what a day is
// depends on the zone.
type Rule struct {
	freq       Frequency
	interval   int
	byDay      []weekdayRule
	byMonthDay []int
	byMonth    [13]bool
	anyMonth   bool
	bySetPos   []int
	weekStart  time.Weekday
	count      int
	until      until

	anchor      Date
	anchorMonth int  // by monthIndex
	anchorWeek  Date // the first day of its week
	last        Date // the last day on which an occurrence may lie, by COUNT or UNTIL
}

// until is the value of UNTIL: a day, a local time, or an instant.
type until struct {
	form    untilForm
	day     Date
	seconds int // of the day, unless it is only a day
}

type untilForm int

const (
	noUntil untilForm = iota
	untilDay
	untilLocal
	untilInstant
)

const endOfTime = Date(1 << 30)

// mostDays is how many days most rules have in a period. Those of a YEARLY rule may be more; the slice grows then, which is
// cheaper than to clear room for a whole year on each question.
const mostDays = 31

// Anchored returns the rule counted from a day, by which parts that the rule leaves out are filled in: a MONTHLY rule without
// days falls on the anchor's day of the month. Nothing recurs before the anchor.
func (r Rule) Anchored(anchor Date) *Rule {
	_, month, day := anchor.Civil()
	r.anchor, r.anchorMonth, r.anchorWeek, r.last = anchor, monthIndex(anchor), r.weekOf(anchor), endOfTime
	if len(r.byDay) == 0 && len(r.byMonthDay) == 0 {
		switch r.freq {
		case Weekly:
			r.byDay = []weekdayRule{{weekday: anchor.Weekday()}}
		case Monthly:
			r.byMonthDay = []int{day}
		case Yearly:
			r.byMonthDay = []int{day}
			if r.anyMonth {
				r.anyMonth, r.byMonth[month] = false, true
			}
		case Daily:
		}
	}
	if r.until.form != noUntil {
		r.last = r.until.day
		if r.until.form == untilInstant {
			r.last++ // it may still be the day before, or already the day after, in the zone; Until decides
		}
	}
	if r.count > 0 {
		r.last = r.nthDay(r.count)
	}
	return &r
}

// nthDay returns the day of the nth occurrence. Walking there once, when a rule is read, is what makes answers cheap.
func (r *Rule) nthDay(n int) Date {
	limit := NewDate(lastYear, time.January, 1)
	day := r.anchor - 1
	for range n {
		next, ok := r.Next(day+1, limit)
		if !ok {
			return limit
		}
		day = next
	}
	return day
}

// Next returns the first occurrence on or after a day that is not after limit.
func (r *Rule) Next(day, limit Date) (Date, bool) {
	day, limit = max(day, r.anchor), min(limit, r.last)
	if day > limit {
		return 0, false
	}
	var buf [mostDays]Date
	for k := r.periodOf(day); ; k++ {
		if r.periodStart(k) > limit {
			return 0, false
		}
		for _, d := range r.candidates(k, buf[:0]) {
			if d >= day {
				return d, d <= limit
			}
		}
	}
}

// Previous returns the last occurrence on or before a day that is not before limit.
func (r *Rule) Previous(day, limit Date) (Date, bool) {
	day, limit = min(day, r.last), max(limit, r.anchor)
	if day < limit {
		return 0, false
	}
	var buf [mostDays]Date
	for k := r.periodOf(day); k >= 0 && r.periodStart(k+1) > limit; k-- {
		days := r.candidates(k, buf[:0])
		for i := len(days) - 1; i >= 0; i-- {
			if days[i] <= day {
				return days[i], days[i] >= limit
			}
		}
	}
	return 0, false
}

// admits reports whether UNTIL admits an occurrence on a day, at a time of the day that is an instant.
func (r *Rule) admits(day Date, seconds int, unix int64) bool {
	u := r.until
	switch u.form {
	case untilLocal:
		return day < u.day || day == u.day && seconds <= u.seconds
	case untilInstant:
		return unix <= int64(u.day)*secondsPerDay+int64(u.seconds)
	default:
		return true // last has bounded the days
	}
}
