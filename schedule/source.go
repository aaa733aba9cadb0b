package schedule

import (
	"cmp"
	"fmt"
	"iter"
	"strings"
	"time"
)

// Source is what opens or closes a policy: one of its permits, or one of its excludes.
type Source struct {
	// Policy is the name of the policy, and Field is where in it the source is, such as maintenanceSchedule.permit[0].
	Policy string
	Field  string
	// Text is what the policy says, with what it leaves out: FREQ=MONTHLY;BYDAY=1SA 20:00 8h Europe/Berlin.
	Text string
	// Reason is that of an exclude, or empty.
	Reason string

	set   set
	scope *scope
}

// Permits returns what opens the schedule, for the change that it is for. A policy without permits that is not paused has one source, which is always open.
func (s *Schedule) Permits() []Source {
	if s == nil {
		return nil
	}
	return s.permits
}

// Excludes returns what is taken out of the permits.
func (s *Schedule) Excludes() []Source {
	if s == nil {
		return nil
	}
	return s.excludes
}

// Location returns the time zone of the policy's dates and times. It is UTC if the policy has none, or could not be read.
func (s *Schedule) Location() *time.Location {
	if s == nil || s.loc == nil {
		return time.UTC
	}
	return s.loc
}

// Day returns when the day of an instant begins in the policy's zone, and when the next one does. Where a clock never shows midnight it is the moment
// at which the day begins.
func (s *Schedule) Day(t time.Time) (from, next time.Time) {
	loc := s.Location()
	day := NewDate(t.In(loc).Date())
	at := func(day Date) time.Time { return time.Unix(resolve(loc, day, 0), 0).UTC() }
	return at(day), at(day + 1)
}

// Strategy returns how the policy decides. It is empty if the policy could not be read.
func (s *Schedule) Strategy() Strategy {
	if s == nil {
		return ""
	}
	return s.strategy
}

// ExpectedDuration returns how long the policy expects an update to take, or 0 if it does not say.
func (s *Schedule) ExpectedDuration() time.Duration {
	if s == nil {
		return 0
	}
	return s.expected
}

// Fit returns what becomes of an update that is expected to take longer than what is left of the window.
func (s *Schedule) Fit() Fit {
	if s == nil {
		return FitRequired
	}
	return cmp.Or(s.fit, FitRequired)
}

// Covers reports whether an instant lies in a window of the schedule, whatever the age of its calendars. One that could not be read has none.
func (s *Schedule) Covers(t time.Time) bool {
	if s == nil || s.open == nil {
		return false
	}
	in, _ := s.open.at(t.Unix(), t.Unix())
	return in
}

// Covers reports whether an instant lies in the source.
func (src Source) Covers(t time.Time) bool {
	if src.set == nil {
		return false
	}
	in, _ := src.set.at(t.Unix(), t.Unix())
	return in
}

// Windows yields what the source covers, as the function Windows does for schedules.
func (src Source) Windows(from, until time.Time) iter.Seq[Window] {
	return func(yield func(Window) bool) {
		if src.set != nil {
			windowsOf(src.set, from, until, yield)
		}
	}
}

// Changes returns which changes the source is for, such as "changes up to Restart". Empty: it is for all.
func (src Source) Changes() string {
	if src.scope == nil {
		return ""
	}
	return src.scope.text
}

// String names the policy and the field, and says what it has.
func (src Source) String() string {
	text := fmt.Sprintf("%s: %s: %s", src.Policy, src.Field, src.Text)
	if src.Reason != "" {
		text += " (" + src.Reason + ")"
	}
	return text
}

// text returns what a permit has, with its defaults.
func (p Permit) text(zone string) string {
	words := []string{p.Recurrence, cmp.Or(p.StartTime, "00:00"), cmp.Or(p.Duration, "to midnight"), zone}
	if p.StartDate != "" {
		words = append(words, "from "+p.StartDate)
	}
	return strings.Join(words, " ")
}

// text returns what an exclude has.
func (x Exclude) text(zone string) string {
	switch {
	case x.Calendar != nil:
		return fmt.Sprintf("%s of ConfigMap %s", x.Calendar.ConfigMap.Key, x.Calendar.ConfigMap.Name)
	case x.Until != "":
		return fmt.Sprintf("%s until %s %s", x.From, x.Until, zone)
	default:
		return x.From + " " + zone
	}
}

// Manual reports whether the policy lets start what somebody has permitted. Asked, it is closed: who knows of a permission leaves it out.
func (s *Schedule) Manual() bool { return s != nil && s.strategy == ManualStrategy }

// Paused reports whether the policy lets nothing start by itself: its strategy is Restrictive or Manual, or it has neither permits nor excludes.
func (s *Schedule) Paused() bool { return s != nil && s.paused }
