package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Calendar is an iCalendar file, and when it was last known to be right.
type Calendar struct {
	Data     []byte
	Modified time.Time
}

// Calendars finds the calendars that policies refer to.
type Calendars interface {
	Calendar(ref ConfigMapKey) (Calendar, error)
}

// CalendarsFunc is a function that finds calendars.
type CalendarsFunc func(ref ConfigMapKey) (Calendar, error)

// Calendar calls the function.
func (f CalendarsFunc) Calendar(ref ConfigMapKey) (Calendar, error) { return f(ref) }

// NoCalendars knows none.
var NoCalendars Calendars = CalendarsFunc(func(ref ConfigMapKey) (Calendar, error) {
	return Calendar{}, fmt.Errorf("there is no calendar %s in ConfigMap %s", ref.Key, ref.Name)
})

// Schedule is a policy that was read, and can be asked. It does not change, and may be shared.
type Schedule struct {
	name     string
	err      error
	loc      *time.Location
	permit   set // all of permits
	permits  []Source
	excludes []Source
	open     set // permit without excludes
	strategy Strategy
	paused   bool
	fit      Fit
	expected time.Duration
	ages     []age
	// scoped has what is for some changes only, and class is the change that the schedule is for. Both are nil where that makes no difference.
	scoped *scoped
	class  *Class
}

// age is how old a calendar may become.
type age struct {
	field    string
	modified time.Time
	limit    time.Duration
}

// Name returns the name of the policy.
func (s *Schedule) Name() string {
	if s == nil {
		return ""
	}
	return s.name
}

// Compile reads a policy. If it can't be read, the schedule that is returned with the error is closed and says why, so that
// it is safe to go on with it.
func Compile(name string, p Policy, calendars Calendars) (*Schedule, error) {
	s := &Schedule{name: name, strategy: p.Strategy, fit: cmp.Or(p.Fit, FitRequired)}
	if err := s.compile(p, calendars); err != nil {
		return Invalid(name, err), err
	}
	return s, nil
}

// Invalid returns the schedule of a policy that can't be read: it is closed and says why.
func Invalid(name string, err error) *Schedule {
	return &Schedule{name: name, err: err, permit: union(nil), open: union(nil)}
}

func (s *Schedule) compile(p Policy, calendars Calendars) error {
	switch s.fit {
	case FitRequired, FitWarn, FitOff:
	default:
		return at("fit", fmt.Errorf("%q is none of Required, Warn and Off", p.Fit))
	}
	if p.ExpectedDuration != "" {
		var err error
		if s.expected, err = ParseDuration(p.ExpectedDuration); err != nil {
			return at("expectedDuration", err)
		}
	}
	m := p.MaintenanceSchedule
	if m != nil {
		if err := s.maintenance(m, calendars); err != nil {
			return err
		}
	}
	return s.decideBy(p.Strategy, m)
}

// decideBy joins what was read, by the strategy.
func (s *Schedule) decideBy(strategy Strategy, m *MaintenanceSchedule) error {
	switch strategy {
	case PermissiveStrategy:
		s.excludes = nil
		s.permits = []Source{{Policy: s.name, Field: "strategy", Text: string(strategy), set: everything{}}}
	case RestrictiveStrategy, ManualStrategy:
		s.paused = true
	case MaintenanceScheduleStrategy:
		s.paused = m == nil || len(m.Permit) == 0 && len(m.Exclude) == 0
	default:
		return at("strategy", fmt.Errorf("%q is none of MaintenanceSchedule, Permissive, Restrictive and Manual", strategy))
	}
	if s.paused {
		s.permits, s.excludes = nil, nil
	}
	limited := func(src Source) bool { return src.scope != nil }
	if slices.ContainsFunc(s.permits, limited) || slices.ContainsFunc(s.excludes, limited) {
		s.scoped = &scoped{permits: s.permits, excludes: s.excludes}
		unknown := Class{}
		*s = *s.narrowed(unknown.class(), unknown)
		return nil
	}
	s.join()
	return nil
}

func (s *Schedule) maintenance(m *MaintenanceSchedule, calendars Calendars) error {
	zone := cmp.Or(m.TimeZone, "UTC")
	var err error
	if s.loc, err = loadZone(zone); err != nil {
		return at("maintenanceSchedule.timeZone", err)
	}
	if err := s.permitted(m.Permit, zone); err != nil {
		return err
	}
	for i, x := range m.Exclude {
		field := fmt.Sprintf("maintenanceSchedule.exclude[%d]", i)
		one, err := compileExclude(field+".", x, s.loc)
		if x.Calendar != nil && err == nil {
			one, err = s.calendar(field+".calendar", *x.Calendar, s.loc, calendars)
		}
		if err != nil {
			return err
		}
		scope, err := x.Changes.scope(field + ".changes")
		if err != nil {
			return err
		}
		s.excludes = append(s.excludes, Source{Policy: s.name, Field: field, Text: scope.after(x.text(zone)), Reason: x.Reason, set: one, scope: scope})
	}
	return nil
}

// permitted reads the permits. Without a list of them, everything is permitted.
func (s *Schedule) permitted(permits []Permit, zone string) error {
	if permits == nil {
		s.permits = []Source{{
			Policy: s.name, Field: "maintenanceSchedule", Text: "always, but for what is excluded", set: everything{},
		}}
		return nil
	}
	for i, p := range permits {
		field := fmt.Sprintf("maintenanceSchedule.permit[%d]", i)
		one, err := compilePermit(field+".", p, s.loc)
		if err != nil {
			return err
		}
		scope, err := p.Changes.scope(field + ".changes")
		if err != nil {
			return err
		}
		s.permits = append(s.permits, Source{Policy: s.name, Field: field, Text: scope.after(p.text(zone)), set: one, scope: scope})
	}
	return nil
}

func compilePermit(field string, p Permit, loc *time.Location) (*recurring, error) {
	rule, err := ParseRule(p.Recurrence)
	if err != nil {
		return nil, at(field+"recurrence", err)
	}
	if rule.count > 0 && p.StartDate == "" {
		return nil, at(field+"startDate", errors.New("COUNT needs a day to count from"))
	}
	r := &recurring{loc: loc, length: length{days: 1, midnight: true}}
	var anchor Date
	if p.StartDate != "" {
		if anchor, err = ParseDate(p.StartDate); err != nil {
			return nil, at(field+"startDate", err)
		}
	}
	if p.StartTime != "" {
		if r.seconds, err = parseTimeOfDay(p.StartTime); err != nil {
			return nil, at(field+"startTime", err)
		}
	}
	if p.Duration != "" {
		d, err := ParseDuration(p.Duration)
		if err != nil {
			return nil, at(field+"duration", err)
		}
		r.length = length{seconds: int64(d / time.Second)}
	}
	r.rule = rule.Anchored(anchor)
	return r, nil
}

func compileExclude(field string, x Exclude, loc *time.Location) (set, error) {
	if x.Calendar != nil {
		if x.From != "" || x.Until != "" {
			return nil, at(field+"calendar", errors.New("an exclude is either days or a calendar"))
		}
		return nil, nil
	}
	from, err := ParseDate(x.From)
	if err != nil {
		return nil, at(field+"from", err)
	}
	until := from + 1
	if x.Until != "" {
		if until, err = ParseDate(x.Until); err != nil {
			return nil, at(field+"until", err)
		}
	}
	if until <= from {
		return nil, at(field+"until", fmt.Errorf("%s is not after %s; until is the day after the last one", until, from))
	}
	return span{resolve(loc, from, 0), resolve(loc, until, 0)}, nil
}

func (s *Schedule) calendar(field string, ref CalendarReference, loc *time.Location, calendars Calendars) (set, error) {
	if ref.ConfigMap.Name == "" || ref.ConfigMap.Key == "" {
		return nil, at(field+".configMap", errors.New("it needs a name and a key"))
	}
	if calendars == nil {
		calendars = NoCalendars
	}
	c, err := calendars.Calendar(ref.ConfigMap)
	if err != nil {
		return nil, at(field+".configMap", err)
	}
	if ref.MaxAge != "" {
		limit, err := ParseDuration(ref.MaxAge)
		if err != nil {
			return nil, at(field+".maxAge", err)
		}
		s.ages = append(s.ages, age{field + ".maxAge", c.Modified, limit})
	}
	events, err := parseCalendar(c.Data, loc)
	if err != nil {
		return nil, at(field, fmt.Errorf("%s in ConfigMap %s: %w", ref.ConfigMap.Key, ref.ConfigMap.Name, err))
	}
	return events, nil
}

// clockSkew is how far the clock of who vouches for a calendar may be ahead.
const clockSkew = time.Hour

// Err says why the schedule is closed at an instant, whatever its windows. It is nil if the policy could be read and its
// calendars are young enough; otherwise it names the field of the policy that is to be put right.
func (s *Schedule) Err(now time.Time) error {
	if s == nil {
		return errors.New("the policy was not read")
	}
	if s.err != nil {
		return s.err
	}
	for _, a := range s.ages {
		if a.modified.Sub(now) > clockSkew {
			return at(a.field, fmt.Errorf("the calendar is of %s, which is yet to come", a.modified.UTC().Format(time.RFC3339)))
		}
		if now.Sub(a.modified) > a.limit {
			return at(a.field, fmt.Errorf("the calendar is of %s and may be at most %s old",
				a.modified.UTC().Format(time.RFC3339), a.limit))
		}
	}
	return nil
}
