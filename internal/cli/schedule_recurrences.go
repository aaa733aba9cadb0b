package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/capi-refit/refit/schedule"
)

// farthest is how far apart two occurrences of a rule can be that has any: February 29 is missing in years such as 2100.
const farthest = 9 * 366 * 24 * time.Hour

// recurrences warns of permits that may say something else than was meant.
func (p *policies) recurrences() []finding {
	s := p.schedules[0]
	spec := p.specs[s].MaintenanceSchedule
	if spec == nil || len(spec.Permit) == 0 {
		return nil
	}
	var all []finding
	for i, source := range s.Permits() {
		if i >= len(spec.Permit) {
			break
		}
		permit := spec.Permit[i]
		warn := func(check, message, remedy string) {
			all = append(all, finding{Severity: lintWarning, Check: check, Policy: s.Name(), Field: source.Field, Message: permit.Recurrence + " " + message, Remedy: remedy})
		}
		parts := partsOf(permit.Recurrence)
		switch {
		case p.occurs(source):
		case p.occurred(source):
			warn("Over", "has had its last window", "Take the permit away, or give it a later UNTIL, or more of COUNT.")
		case parts["UNTIL"] != "" || parts["COUNT"] != "" || permit.StartDate != "":
			warn("Over", "has no window any more", "Take the permit away, or give it a later UNTIL, or more of COUNT.")
		default:
			warn("NoDate", "never comes: no month has such a day", "Correct BYMONTHDAY and BYMONTH.")
		}
		if parts["FREQ"] == "WEEKLY" && parts["BYDAY"] == "" && permit.StartDate == "" {
			warn("NoDay", fmt.Sprintf("names no day of the week, and is %s", p.dayOf(source)), "Say which day, with BYDAY.")
		}
		if n := parts["INTERVAL"]; n != "" && strings.TrimLeft(n, "0") != "1" && permit.StartDate == "" {
			warn("NoStart", "leaves out times and does not say from when on they are counted", "Say it with startDate: which weeks or months these are depends on it.")
		}
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

func (p *policies) occurs(source schedule.Source) bool {
	for range source.Windows(p.now, p.now.Add(farthest)) {
		return true
	}
	return false
}

func (p *policies) occurred(source schedule.Source) bool {
	for range source.Windows(p.now.Add(-farthest), p.now) {
		return true
	}
	return false
}

// dayOf returns on which day of the week a source opens.
func (p *policies) dayOf(source schedule.Source) string {
	for w := range source.Windows(p.now, p.now.Add(farthest)) {
		if !w.Start.IsZero() {
			return "on " + w.Start.In(p.loc).Weekday().String() + "s"
		}
	}
	return "on no day"
}
