// Package schedulelint finds what of a schedule can be read, and may not be meant.
package schedulelint

import (
	"strings"
	"time"

	"github.com/capi-refit/refit/schedule"
)

// farthest is how far apart two occurrences of a rule can be that has any: February 29 is missing in years such as 2100.
const farthest = 9 * 366 * 24 * time.Hour

// Doubt is something that a permit says and that may not be meant.
type Doubt struct {
	// Check is its name, and Field the field of the policy that it is about.
	Check, Field string
	// Message says what is so, and Remedy what to do.
	Message, Remedy string
}

// Permits returns what may not be meant of the permits of a schedule that was read of m, also of those that are for other changes than it is.
func Permits(now time.Time, s *schedule.Schedule, m *schedule.MaintenanceSchedule) []Doubt {
	if m == nil || len(m.Permit) == 0 {
		return nil
	}
	var all []Doubt
	for i, source := range s.Widest().Permits() {
		if i == len(m.Permit) {
			break
		}
		permit := m.Permit[i]
		for _, d := range append(ends(now, source, permit), leavesOut(now, s.Location(), source, permit)...) {
			d.Field, d.Message = source.Field, permit.Recurrence+" "+d.Message
			all = append(all, d)
		}
	}
	return all
}

// ends doubts a permit that has no window to come.
func ends(now time.Time, source schedule.Source, permit schedule.Permit) []Doubt {
	parts := partsOf(permit.Recurrence)
	bounded := parts["UNTIL"] != "" || parts["COUNT"] != "" || permit.StartDate != ""
	switch {
	case occurs(source, now, now.Add(farthest)):
		return nil
	case bounded || occurs(source, now.Add(-farthest), now):
		return []Doubt{{Check: "Over", Message: "has had its last window", Remedy: "Take the permit away, or give it a later UNTIL, or more of COUNT."}}
	default:
		return []Doubt{{Check: "NoDate", Message: "never comes: no month has such a day", Remedy: "Correct BYMONTHDAY and BYMONTH."}}
	}
}

// leavesOut doubts a permit that leaves out what it depends on.
func leavesOut(now time.Time, loc *time.Location, source schedule.Source, permit schedule.Permit) []Doubt {
	if permit.StartDate != "" {
		return nil
	}
	var all []Doubt
	parts := partsOf(permit.Recurrence)
	if parts["FREQ"] == "WEEKLY" && parts["BYDAY"] == "" {
		all = append(all, Doubt{Check: "NoDay", Message: "names no day of the week, and is " + dayOf(now, loc, source), Remedy: "Say which day, with BYDAY."})
	}
	if n := parts["INTERVAL"]; n != "" && strings.TrimLeft(n, "0") != "1" {
		all = append(all, Doubt{
			Check: "NoStart", Message: "leaves out times and does not say from when on they are counted",
			Remedy: "Say it with startDate: which weeks or months these are depends on it.",
		})
	}
	return all
}

func partsOf(rule string) map[string]string {
	parts := map[string]string{}
	for part := range strings.SplitSeq(strings.ToUpper(rule), ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		parts[name] = value
	}
	return parts
}

func occurs(source schedule.Source, from, until time.Time) bool {
	for range source.Windows(from, until) {
		return true
	}
	return false
}

// dayOf returns on which day of the week a source opens.
func dayOf(now time.Time, loc *time.Location, source schedule.Source) string {
	for w := range source.Windows(now, now.Add(farthest)) {
		if !w.Start.IsZero() {
			return "on " + w.Start.In(loc).Weekday().String() + "s"
		}
	}
	return "on no day"
}
