package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxInterval and maxCount keep what is typed wrongly from being computed with.
const (
	maxInterval = 100_000
	maxCount    = 100_000
)

var frequencies = map[string]Frequency{"DAILY": Daily, "WEEKLY": Weekly, "MONTHLY": Monthly, "YEARLY": Yearly}

var weekdays = map[string]time.Weekday{
	"SU": time.Sunday, "MO": time.Monday, "TU": time.Tuesday, "WE": time.Wednesday,
	"TH": time.Thursday, "FR": time.Friday, "SA": time.Saturday,
}

// ParseRule reads a recurrence rule, such as FREQ=MONTHLY;BYDAY=1SA.
func ParseRule(s string) (Rule, error) {
	r := Rule{interval: 1, weekStart: time.Monday, anyMonth: true}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(strings.TrimSuffix(s, ";"), ";") {
		name, value, ok := strings.Cut(strings.ToUpper(part), "=")
		if !ok || value == "" {
			return Rule{}, fmt.Errorf("%q is not NAME=VALUE", part)
		}
		if seen[name] {
			return Rule{}, fmt.Errorf("%s is there twice", name)
		}
		seen[name] = true
		if err := r.parsePart(name, value); err != nil {
			return Rule{}, err
		}
	}
	return r, r.check(seen)
}

func (r *Rule) parsePart(name, value string) (err error) {
	switch name {
	case "FREQ":
		err = r.parseFrequency(value)
	case "INTERVAL":
		r.interval, err = number(name, value, maxInterval)
	case "COUNT":
		r.count, err = number(name, value, maxCount)
	case "BYDAY":
		r.byDay, err = parseByDay(value)
	case "BYMONTHDAY":
		r.byMonthDay, err = signedNumbers(name, value, 31)
	case "BYSETPOS":
		r.bySetPos, err = signedNumbers(name, value, 366)
	case "BYMONTH":
		err = r.parseByMonth(value)
	case "WKST":
		err = r.parseWeekStart(value)
	case "UNTIL":
		r.until, err = parseUntil(value)
	default:
		err = fmt.Errorf("%s is not supported", name)
	}
	return err
}

func (r *Rule) parseFrequency(value string) error {
	if r.freq = frequencies[value]; r.freq == 0 {
		return fmt.Errorf("FREQ=%s: DAILY, WEEKLY, MONTHLY or YEARLY", value)
	}
	return nil
}

func (r *Rule) parseWeekStart(value string) error {
	w, ok := weekdays[value]
	if r.weekStart = w; !ok {
		return fmt.Errorf("WKST=%s is not a day: MO, TU, WE, TH, FR, SA or SU", value)
	}
	return nil
}

func (r *Rule) parseByMonth(value string) error {
	r.anyMonth = false
	for m := range strings.SplitSeq(value, ",") {
		n, err := number("BYMONTH", m, 12)
		if err != nil {
			return err
		}
		r.byMonth[n] = true
	}
	return nil
}

// check says which parts do not go together.
func (r *Rule) check(seen map[string]bool) error {
	if r.freq == 0 {
		return errors.New("FREQ is missing")
	}
	if seen["COUNT"] && seen["UNTIL"] {
		return errors.New("COUNT and UNTIL exclude each other")
	}
	some := seen["BYDAY"] || seen["BYMONTHDAY"] || seen["BYMONTH"]
	if seen["BYSETPOS"] && !some {
		return errors.New("BYSETPOS needs BYDAY, BYMONTHDAY or BYMONTH")
	}
	return r.checkDays(seen["BYMONTHDAY"])
}

// checkDays says which days the frequency does not know.
func (r *Rule) checkDays(byMonthDay bool) error {
	ordinal := slices.ContainsFunc(r.byDay, func(b weekdayRule) bool { return b.nth != 0 })
	switch {
	case ordinal && r.freq < Monthly:
		return errors.New("BYDAY with a number, such as 1SA, needs MONTHLY or YEARLY")
	case byMonthDay && r.freq == Weekly:
		return errors.New("BYMONTHDAY can't be used with WEEKLY")
	}
	return nil
}

func parseByDay(value string) ([]weekdayRule, error) {
	var days []weekdayRule
	for v := range strings.SplitSeq(value, ",") {
		split := max(len(v)-2, 0)
		weekday, ok := weekdays[v[split:]]
		if !ok {
			return nil, fmt.Errorf("BYDAY: %q is not a day: MO, TU, WE, TH, FR, SA or SU", v)
		}
		b := weekdayRule{weekday: weekday}
		if split > 0 {
			n, err := signedNumbers("BYDAY", v[:split], 53)
			if err != nil {
				return nil, err
			}
			b.nth = n[0]
		}
		days = append(days, b)
	}
	return days, nil
}

func signedNumbers(name, value string, limit int) ([]int, error) {
	var ns []int
	for v := range strings.SplitSeq(value, ",") {
		digits, negative := strings.CutPrefix(v, "-")
		if !negative {
			digits = strings.TrimPrefix(v, "+")
		}
		n, err := number(name, digits, limit)
		if err != nil {
			return nil, err
		}
		if negative {
			n = -n
		}
		ns = append(ns, n)
	}
	return ns, nil
}

// number reads digits, without a sign, of a number between 1 and a limit.
func number(name, digits string, limit int) (int, error) {
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || n < 1 || n > uint64(limit) {
		return 0, fmt.Errorf("%s: %q is not a number between 1 and %d", name, digits, limit)
	}
	return int(n), nil
}

func parseUntil(value string) (until, error) {
	for layout, form := range map[string]untilForm{
		"20060102": untilDay, "20060102T150405": untilLocal, "20060102T150405Z": untilInstant,
	} {
		if t, err := time.Parse(layout, value); err == nil {
			h, m, s := t.Clock()
			return until{form: form, day: NewDate(t.Date()), seconds: h*3600 + m*60 + s}, nil
		}
	}
	return until{}, fmt.Errorf("UNTIL=%s is neither a day, such as 20261226, nor a time, such as 20261226T200000Z", value)
}
