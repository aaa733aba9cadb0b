package cli

import "github.com/capi-refit/refit/internal/schedulelint"

// recurrences warns of permits that may say something else than was meant.
func (p *policies) recurrences() []finding {
	s := p.schedules[0]
	var all []finding
	for _, d := range schedulelint.Permits(p.now, s, p.specs[s].MaintenanceSchedule) {
		all = append(all, finding{Severity: lintWarning, Check: d.Check, Policy: s.Name(), Field: d.Field, Message: d.Message, Remedy: d.Remedy})
	}
	return all
}
