package schedule

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ics "github.com/arran4/golang-ical"
)

// parseCalendar returns what the events of an iCalendar file cover. Times without a zone, and days, are of loc.
//
// A calendar takes windows away, so that what is doubtful is kept: the first occurrence also where it does not match its rule,
// and an instance that was moved both where it was and where it is. Only what was cancelled does not count: an event, or one instance of it.
func parseCalendar(data []byte, loc *time.Location) (set, error) {
	// The parser takes a file that ends too early for a whole one; half a calendar would open what the other half closes.
	text := bytes.ToUpper(bytes.TrimSpace(data))
	if !bytes.HasPrefix(text, []byte("BEGIN:VCALENDAR")) || !bytes.HasSuffix(text, []byte("END:VCALENDAR")) {
		return nil, errors.New("it is not an iCalendar file, or not a whole one")
	}
	parsed, err := ics.ParseCalendar(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte("BEGIN:VEVENT")); n != len(parsed.Events()) {
		return nil, fmt.Errorf("only %d of %d events can be read", len(parsed.Events()), n)
	}
	events, cancelled, err := readEvents(parsed.Events(), loc)
	if err != nil {
		return nil, err
	}
	var once []span
	var all union
	for _, e := range events {
		if e.instance == nil {
			e.except = append(e.except, cancelled[e.uid]...)
		}
		once = append(once, e.once()...)
		if e.rule != nil {
			all = append(all, e.recurring())
		}
	}
	return append(all, spans(joined(once))), nil
}

// readEvents returns the events that are not cancelled, and which instances of events are, by the UID of the event.
func readEvents(all []*ics.VEvent, loc *time.Location) (events []*event, cancelled map[string][]moment, err error) {
	cancelled = map[string][]moment{}
	for i, v := range all {
		e := &event{loc: loc}
		if err := e.read(v.Properties); err != nil {
			return nil, nil, fmt.Errorf("event %d: %w", i+1, err)
		}
		switch {
		case !e.cancelled:
			events = append(events, e)
		case e.instance != nil && e.uid != "":
			cancelled[e.uid] = append(cancelled[e.uid], *e.instance)
		}
	}
	return events, cancelled, nil
}

// moment is the value of a DATE or DATE-TIME property.
type moment struct {
	loc     *time.Location
	day     Date
	seconds int
	isDay   bool
}

func (m moment) unix() int64 { return resolve(m.loc, m.day, m.seconds) }

// event is a VEVENT.
type event struct {
	loc       *time.Location
	start     *moment
	end       *moment
	duration  *length
	rule      *Rule
	except    []moment
	also      []moment
	cancelled bool
	uid       string
	// instance is which occurrence of the event with this UID it is about; nil: about all.
	instance *moment
}

func (e *event) read(properties []ics.IANAProperty) error {
	var recurrence string
	for _, p := range properties {
		if strings.EqualFold(p.IANAToken, "RRULE") {
			if recurrence != "" {
				return errors.New("RRULE is there twice")
			}
			recurrence = p.Value
		}
		if err := e.property(p); err != nil {
			return fmt.Errorf("%s: %w", strings.ToUpper(p.IANAToken), err)
		}
	}
	if err := e.check(); err != nil {
		return err
	}
	if recurrence == "" {
		return nil
	}
	rule, err := ParseRule(recurrence)
	if err != nil {
		return fmt.Errorf("RRULE: %w", err)
	}
	e.rule = rule.Anchored(e.start.day)
	return nil
}

// check says which properties are missing, or do not go together.
func (e *event) check() error {
	switch {
	case e.start == nil:
		return errors.New("DTSTART is missing")
	case e.end != nil && e.duration != nil:
		return errors.New("DTEND and DURATION exclude each other")
	case e.end != nil && e.end.isDay != e.start.isDay:
		return errors.New("DTEND: one of DTSTART and DTEND is a day, the other a time")
	case e.end != nil && e.end.unix() < e.start.unix():
		return errors.New("DTEND is before DTSTART")
	}
	return nil
}

func (e *event) property(p ics.IANAProperty) error {
	switch strings.ToUpper(p.IANAToken) {
	case "DTSTART":
		m, err := e.moment(p.BaseProperty, p.Value)
		e.start = &m
		return err
	case "DTEND":
		m, err := e.moment(p.BaseProperty, p.Value)
		e.end = &m
		return err
	case "DURATION":
		l, err := parseISODuration(p.Value)
		e.duration = &l
		return err
	case "EXDATE":
		ms, err := e.moments(p)
		e.except = append(e.except, ms...)
		return err
	case "RDATE":
		ms, err := e.moments(p)
		e.also = append(e.also, ms...)
		return err
	case "EXRULE":
		return errors.New("it is not supported")
	case "UID":
		e.uid = p.Value
	case "RECURRENCE-ID":
		m, err := e.moment(p.BaseProperty, p.Value)
		if e.instance = &m; len(p.ICalParameters["RANGE"]) > 0 { // and all after it: they are kept
			e.uid = ""
		}
		return err
	case "STATUS":
		e.cancelled = strings.EqualFold(p.Value, "CANCELLED")
	}
	return nil
}

func (e *event) moments(p ics.IANAProperty) ([]moment, error) {
	var ms []moment
	for v := range strings.SplitSeq(p.Value, ",") {
		m, err := e.moment(p.BaseProperty, v)
		if err != nil {
			return nil, err
		}
		ms = append(ms, m)
	}
	return ms, nil
}

func (e *event) moment(p ics.BaseProperty, value string) (moment, error) {
	m := moment{loc: e.loc}
	for name, values := range p.ICalParameters {
		if !strings.EqualFold(name, "TZID") || len(values) == 0 {
			continue
		}
		var err error
		zone := values[0]
		if iana, ok := windowsZones[zone]; ok {
			zone = iana
		}
		if m.loc, err = loadZone(zone); err != nil {
			return moment{}, fmt.Errorf("TZID: %w", err)
		}
	}
	t, err := time.Parse("20060102", value)
	if m.isDay = err == nil; m.isDay {
		m.day, m.loc = NewDate(t.Date()), e.loc
		return m, nil
	}
	local, utc := strings.CutSuffix(value, "Z")
	if utc {
		m.loc = time.UTC
	}
	if t, err = time.Parse("20060102T150405", local); err != nil {
		return moment{}, fmt.Errorf("%q is neither a day nor a time", value)
	}
	h, minutes, s := t.Clock()
	m.day, m.seconds = NewDate(t.Date()), h*3600+minutes*60+s
	return m, nil
}

// length returns how long each occurrence is. Without an end, a day lasts a day and a time no time.
func (e *event) length() length {
	switch {
	case e.duration != nil:
		return *e.duration
	case e.end != nil && e.start.isDay:
		return length{days: int(e.end.day - e.start.day), midnight: true}
	case e.end != nil:
		return length{seconds: e.end.unix() - e.start.unix()}
	case e.start.isDay:
		return length{days: 1, midnight: true}
	default:
		return length{}
	}
}

func (e *event) recurring() *recurring {
	r := &recurring{rule: e.rule, loc: e.start.loc, seconds: e.start.seconds, length: e.length(), except: map[Date]bool{}}
	for _, x := range e.except {
		// Only what names an occurrence exactly takes it away.
		if x.isDay != e.start.isDay {
			continue
		}
		for day := x.day - 1; day <= x.day+1; day++ {
			if resolve(r.loc, day, r.seconds) == x.unix() {
				r.except[day] = true
			}
		}
	}
	return r
}

// once returns the occurrences that no rule makes.
func (e *event) once() []span {
	var ss []span
	for _, m := range append([]moment{*e.start}, e.also...) {
		if slices.ContainsFunc(e.except, func(x moment) bool { return x.isDay == m.isDay && x.unix() == m.unix() }) {
			continue
		}
		one := recurring{rule: &Rule{}, loc: m.loc, seconds: m.seconds, length: e.length()}
		ss = append(ss, one.occurrence(m.day))
	}
	return ss
}

// parseISODuration reads a duration such as P1DT2H. Its weeks and days are of the calendar.
func parseISODuration(s string) (length, error) {
	bad := fmt.Errorf("%q is not a duration, such as P1D or PT8H", s)
	rest, ok := strings.CutPrefix(strings.TrimPrefix(s, "+"), "P")
	if !ok || rest == "" {
		return length{}, bad
	}
	date, clock, hasClock := strings.Cut(rest, "T")
	days, ok := isoNumbers(date, "WD", 7, 1)
	seconds, ok2 := isoNumbers(clock, "HMS", 3600, 60, 1)
	if !ok || !ok2 || hasClock && clock == "" {
		return length{}, bad
	}
	return length{days: int(days), seconds: seconds}, nil
}

// isoNumbers sums numbers, each with one of some units behind it, in the units' order.
func isoNumbers(s, units string, factors ...int64) (sum int64, ok bool) {
	for s != "" {
		i := strings.IndexAny(s, units)
		if i < 0 {
			return 0, false
		}
		n, err := number("", s[:i], 1<<24)
		if err != nil && strings.Trim(s[:i], "0") != "" || s[:i] == "" {
			return 0, false
		}
		u := strings.IndexByte(units, s[i])
		sum += int64(n) * factors[u]
		s, units, factors = s[i+1:], units[u+1:], factors[u+1:]
	}
	return sum, true
}
