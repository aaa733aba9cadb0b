package schedule

import (
	"math/bits"
	"slices"
	"time"
)

// periodOf returns the index of the period, counted from the anchor's, that a day lies in, or, of the periods between which
// INTERVAL skips it, the earlier one.
func (r *Rule) periodOf(day Date) int {
	switch r.freq {
	case Weekly:
		return floorDiv(int(r.weekOf(day)-r.anchorWeek), 7*r.interval)
	case Monthly:
		return floorDiv(monthIndex(day)-r.anchorMonth, r.interval)
	case Yearly:
		return floorDiv(monthIndex(day)/12-r.anchorMonth/12, r.interval)
	default:
		return floorDiv(int(day-r.anchor), r.interval)
	}
}

// periodStart returns the first day of a period.
func (r *Rule) periodStart(k int) Date {
	switch r.freq {
	case Weekly:
		return r.anchorWeek + Date(7*k*r.interval)
	case Monthly:
		m := r.anchorMonth + k*r.interval
		return NewDate(m/12, time.Month(m%12+1), 1)
	case Yearly:
		return NewDate(r.anchorMonth/12+k*r.interval, time.January, 1)
	default:
		return r.anchor + Date(k*r.interval)
	}
}

func (r *Rule) weekOf(day Date) Date {
	return day - Date(floorMod(int(day.Weekday()-r.weekStart), 7))
}

func monthIndex(day Date) int {
	y, m, _ := day.Civil()
	return y*12 + int(m) - 1
}

// candidates appends the days of a period on which the rule falls, in order.
func (r *Rule) candidates(k int, days []Date) []Date {
	start := r.periodStart(k)
	switch r.freq {
	case Weekly:
		days = r.week(start, days)
	case Monthly:
		y, m, _ := start.Civil()
		days = r.month(y, m, days)
	case Yearly:
		y, _, _ := start.Civil()
		for m := time.January; m <= time.December; m++ {
			days = r.month(y, m, days)
		}
	default:
		if r.inMonth(start) && r.onMonthDay(start) && (len(r.byDay) == 0 || r.onWeekday(start.Weekday())) {
			days = append(days, start)
		}
	}
	if len(r.bySetPos) == 0 {
		return days
	}
	return r.atPositions(days)
}

func (r *Rule) week(start Date, days []Date) []Date {
	for d := start; d < start+7; d++ {
		if r.inMonth(d) && r.onWeekday(d.Weekday()) {
			days = append(days, d)
		}
	}
	return days
}

func (r *Rule) inMonth(day Date) bool {
	if r.anyMonth {
		return true
	}
	_, m, _ := day.Civil()
	return r.byMonth[m]
}

func (r *Rule) onWeekday(w time.Weekday) bool {
	return slices.ContainsFunc(r.byDay, func(b weekdayRule) bool { return b.weekday == w })
}

func (r *Rule) onMonthDay(day Date) bool {
	if len(r.byMonthDay) == 0 {
		return true
	}
	y, m, d := day.Civil()
	return r.monthDays(daysIn(y, m))&(1<<d) != 0
}

// month appends the days of a month on which a MONTHLY or YEARLY rule falls. A set of days is a bit mask; bit 1 is the first.
func (r *Rule) month(year int, month time.Month, days []Date) []Date {
	if !r.anyMonth && !r.byMonth[month] {
		return days
	}
	length := daysIn(year, month)
	mask := uint32(1)<<(length+1) - 2
	if len(r.byMonthDay) > 0 {
		mask &= r.monthDays(length)
	}
	if len(r.byDay) > 0 && mask != 0 {
		mask &= r.weekdays(year, month, length)
	}
	if mask == 0 {
		return days
	}
	for first := NewDate(year, month, 1); mask != 0; mask &= mask - 1 {
		days = append(days, first+Date(bits.TrailingZeros32(mask)-1))
	}
	return days
}

func (r *Rule) monthDays(length int) uint32 {
	var mask uint32
	for _, d := range r.byMonthDay {
		if d < 0 {
			d += length + 1
		}
		if d >= 1 && d <= length {
			mask |= 1 << d
		}
	}
	return mask
}

// weekdays returns the days of a month that BYDAY names. The nth weekday is counted in the month, but in the year if the rule
// is YEARLY and has no BYMONTH.
func (r *Rule) weekdays(year int, month time.Month, length int) uint32 {
	first := NewDate(year, month, 1)
	spanStart, spanEnd := first, first+Date(length-1)
	if r.freq == Yearly && r.anyMonth {
		spanStart, spanEnd = NewDate(year, time.January, 1), NewDate(year, time.December, 31)
	}
	var mask uint32
	for _, b := range r.byDay {
		if b.nth == 0 {
			for d := 1 + floorMod(int(b.weekday-first.Weekday()), 7); d <= length; d += 7 {
				mask |= 1 << d
			}
			continue
		}
		day := nthWeekday(spanStart, spanEnd, b)
		if day < spanStart || day > spanEnd {
			continue // a fifth Monday where there are four
		}
		if i := int(day-first) + 1; i >= 1 && i <= length {
			mask |= 1 << i
		}
	}
	return mask
}

// nthWeekday returns the nth weekday of a span of days, counted from its end if n is negative. It lies outside the span if
// there is none.
func nthWeekday(start, end Date, b weekdayRule) Date {
	if b.nth > 0 {
		return start + Date(floorMod(int(b.weekday-start.Weekday()), 7)+7*(b.nth-1))
	}
	return end - Date(floorMod(int(end.Weekday()-b.weekday), 7)) + Date(7*(b.nth+1))
}

func (r *Rule) atPositions(days []Date) []Date {
	var picked [366]bool
	for _, p := range r.bySetPos {
		if p < 0 {
			p += len(days) + 1
		}
		if p >= 1 && p <= len(days) {
			picked[p-1] = true
		}
	}
	kept := days[:0]
	for i, d := range days {
		if picked[i] {
			kept = append(kept, d)
		}
	}
	return kept
}
