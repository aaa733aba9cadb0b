package schedule

import (
	"fmt"
	"time"
)

const secondsPerDay = 86400

// Date is a day of the proleptic Gregorian calendar, counted from 1970-01-01. It has no time zone.
type Date int

// NewDate returns the day of a year, month and day of the month, which must exist.
func NewDate(year int, month time.Month, day int) Date {
	// Years begin in March here, so that the leap day is the last one and all months have a place that needs no table.
	m := int(month)
	if m <= 2 {
		year--
		m += 12
	}
	era := floorDiv(year, 400)
	yearOfEra := year - era*400
	dayOfYear := (153*(m-3)+2)/5 + day - 1
	dayOfEra := yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear
	return Date(era*146097 + dayOfEra - 719468)
}

// ParseDate reads YYYY-MM-DD.
func ParseDate(s string) (Date, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a date; write it as 2026-01-31", s)
	}
	return NewDate(t.Date()), nil
}

// Civil returns year, month and day of the month.
func (d Date) Civil() (year int, month time.Month, day int) {
	z := int(d) + 719468
	era := floorDiv(z, 146097)
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = doy - (153*mp+2)/5 + 1
	year = yoe + era*400
	if mp < 10 {
		return year, time.Month(mp + 3), day
	}
	return year + 1, time.Month(mp - 9), day
}

// Weekday returns the day of the week.
func (d Date) Weekday() time.Weekday { return time.Weekday(floorMod(int(d)+4, 7)) }

// String writes the day as YYYY-MM-DD.
func (d Date) String() string {
	y, m, day := d.Civil()
	return fmt.Sprintf("%04d-%02d-%02d", y, int(m), day)
}

func daysIn(year int, month time.Month) int {
	switch month {
	case time.April, time.June, time.September, time.November:
		return 30
	case time.February:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	default:
		return 31
	}
}

// dayOf returns the day of an instant in UTC.
func dayOf(unix int64) Date { return Date(floorDiv(int(unix), secondsPerDay)) }

func floorDiv(a, b int) int {
	q := a / b
	if q*b != a && (a < 0) != (b < 0) {
		q--
	}
	return q
}

func floorMod(a, b int) int { return a - floorDiv(a, b)*b }
