package cli

import (
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
		if i == len(spec.Permit) {
			break
		}
		permit := spec.Permit[i]
		for _, f := range append(p.ends(source, permit), p.leavesOut(source, permit)...) {
			f.Severity, f.Policy, f.Field, f.Message = lintWarning, s.Name(), source.Field, permit.Recurrence+" "+f.Message
			all = append(all, f)
		}
	}
	return all
}

// ends warns of a permit that has no window to come.
func (p *policies) ends(source schedule.Source, permit schedule.Permit) []finding {
	parts := partsOf(permit.Recurrence)
	bounded := parts["UNTIL"] != "" || parts["COUNT"] != "" || permit.StartDate != ""
	switch {
	case p.occurs(source):
		return nil
	case bounded || p.occurred(source):
		return []finding{{Check: "Over", Message: "has had its last window", Remedy: "Take the permit away, or give it a later UNTIL, or more of COUNT."}}
	default:
		return []finding{{Check: "NoDate", Message: "never comes: no month has such a day", Remedy: "Correct BYMONTHDAY and BYMONTH."}}
	}
}

// leavesOut warns of a permit that leaves out what it depends on.
func (p *policies) leavesOut(source schedule.Source, permit schedule.Permit) []finding {
	if permit.StartDate != "" {
		return nil
	}
	var all []finding
	parts := partsOf(permit.Recurrence)
	if parts["FREQ"] == "WEEKLY" && parts["BYDAY"] == "" {
		all = append(all, finding{Check: "NoDay", Message: "names no day of the week, and is " + p.dayOf(source), Remedy: "Say which day, with BYDAY."})
	}
	if n := parts["INTERVAL"]; n != "" && strings.TrimLeft(n, "0") != "1" {
		all = append(all, finding{
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
