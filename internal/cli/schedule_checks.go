package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capi-refit/refit/schedule"
)

// The least time that policies should be open, by which a cluster can keep up with updates.
const (
	littleTimeLeast  = 48 * time.Hour
	littleTimePeriod = 32 * 24 * time.Hour
)

func invalidFinding(name string, err error) finding {
	f := finding{
		Severity: lintError, Check: "Invalid", Policy: name, Message: err.Error(),
		Remedy: "Put it right: until then the policy is closed, and no change starts on the machines that it selects.",
	}
	var field *schedule.FieldError
	if errors.As(err, &field) {
		f.Field, f.Message = field.Field, field.Err.Error()
	}
	return f
}

// ahead returns the windows that end after now and start within a time.
func (p *policies) ahead(within time.Duration) []schedule.Window {
	return slices.Collect(schedule.Windows(p.now, p.now.Add(within), p.schedules...))
}

// littleTime warns of less time than a cluster needs to keep up. That a policy is Restrictive is its author's will.
func (p *policies) littleTime() []finding {
	field := "maintenanceSchedule"
	if len(p.schedules) == 1 && p.schedules[0].Strategy() == schedule.RestrictiveStrategy {
		return nil
	}
	var open time.Duration
	until := p.now.Add(littleTimePeriod)
	for _, w := range p.ahead(littleTimePeriod) {
		open += within(w, p.now, until)
	}
	if open >= littleTimeLeast {
		return nil
	}
	return []finding{{
		Severity: lintWarning, Check: "LittleTime", Policy: p.names(), Field: field,
		Message: fmt.Sprintf("open for %s of the 32 days from %s on, which is less than %s",
			short(open), localTime(p.now, p.loc), short(littleTimeLeast)),
		Remedy: "Permit more or longer windows, or exclude less: updates may not get through all machines in time.",
	}}
}

// within returns how much of a window lies in a time.
func within(w schedule.Window, from, until time.Time) time.Duration {
	if w.Start.After(from) {
		from = w.Start
	}
	if !w.End.IsZero() && w.End.Before(until) {
		until = w.End
	}
	return max(0, until.Sub(from))
}

// overlaps warns of permits that are open at the same time: they make one window, which may not be what was meant. Those for different changes are meant.
func (p *policies) overlaps() []finding {
	var all []finding
	permits := p.schedules[0].Permits()
	if len(permits) < 2 {
		return nil
	}
	windows := make([][]schedule.Window, len(permits))
	for i, permit := range permits {
		windows[i] = slices.Collect(permit.Windows(p.now, p.now.Add(schedule.DefaultHorizon)))
		for j := range i {
			common, ok := firstCommon(windows[j], windows[i])
			if !ok || permit.Changes() != permits[j].Changes() {
				continue
			}
			all = append(all, finding{
				Severity: lintWarning, Check: "Overlap", Policy: permit.Policy, Field: permit.Field,
				Message: fmt.Sprintf("%s overlaps %s, %s: first %s", permit.Text, permits[j].Field, permits[j].Text, between(common, p.loc)),
				Remedy:  "They are joined to one window. Drop one of them, or shorten the earlier one, so that each can be read by itself.",
			})
		}
	}
	return all
}

// firstCommon returns the first time that lies in windows of both, each in order. Windows that only touch have none.
func firstCommon(a, b []schedule.Window) (schedule.Window, bool) {
	for len(a) > 0 && len(b) > 0 {
		w := schedule.Window{Start: a[0].Start, End: a[0].End}
		if b[0].Start.After(w.Start) {
			w.Start = b[0].Start
		}
		bFirst := !b[0].End.IsZero() && (w.End.IsZero() || b[0].End.Before(w.End))
		if bFirst {
			w.End = b[0].End
		}
		if w.End.IsZero() || w.Start.Before(w.End) {
			return w, true
		}
		if bFirst {
			b = b[1:]
		} else {
			a = a[1:]
		}
	}
	return schedule.Window{}, false
}

// tooShort warns of windows in which an update can't end that takes as long as is expected.
func (p *policies) tooShort() []finding {
	var expected time.Duration
	for _, s := range p.schedules {
		if s.Fit() != schedule.FitOff {
			expected = max(expected, s.ExpectedDuration())
		}
	}
	all := p.ahead(schedule.DefaultHorizon)
	bad := slices.DeleteFunc(slices.Clone(all), func(w schedule.Window) bool {
		return w.Start.IsZero() || w.End.IsZero() || w.End.Sub(w.Start) >= expected
	})
	if len(bad) == 0 {
		return nil
	}
	message := fmt.Sprintf("%d of %s within 1000 days are shorter than the %s that an update is expected to take: first %s",
		len(bad), counted(len(all), "window", "windows"), short(expected), between(bad[0], p.loc))
	remedy := "Lengthen the windows, or put the duration right that is expected."
	if p.waits() {
		remedy += " With fit: Required no update starts in them."
	}
	return []finding{{
		Severity: lintWarning, Check: "TooShort", Policy: p.names(), Field: "expectedDuration", Message: message, Remedy: remedy,
	}}
}

// waits reports whether an update waits for a window that is long enough.
func (p *policies) waits() bool {
	return slices.ContainsFunc(p.schedules, func(s *schedule.Schedule) bool {
		return s.Fit() == schedule.FitRequired && s.ExpectedDuration() > 0
	})
}

// together looks at several policies as one machine sees them that all of them select. Of policies that never meet that is
// all there is to say; otherwise it repeats nothing that was already said of one of them.
func (p *policies) together() []finding {
	if never := p.neverMeet(); len(never) > 0 {
		return never
	}
	if !p.share() {
		return nil
	}
	var all []finding
	for _, check := range []func(*policies) []finding{(*policies).littleTime, (*policies).tooShort} {
		said := slices.ContainsFunc(p.schedules, func(s *schedule.Schedule) bool { return len(check(p.only(s))) > 0 })
		if !said && len(p.ahead(schedule.DefaultHorizon)) > 0 {
			all = append(all, check(p)...)
		}
	}
	return all
}

// mostPairs is how many pairs of policies that never meet are named.
const mostPairs = 100

// neverMeet warns of policies that have windows each, but none together. It names pairs where a pair is enough. Policies that
// can't select the same machine need not meet.
func (p *policies) neverMeet() []finding {
	var some []*schedule.Schedule
	for _, s := range p.schedules {
		if p.kinds.opens(p.only(s)) {
			some = append(some, s)
		}
	}
	var all []finding
	more, told := 0, map[[2]*schedule.Schedule]bool{} // two of the platform are together in each namespace
	for _, together := range p.inNamespaces(some) {
		p.strangers(together, func(a, b *schedule.Schedule) {
			if told[[2]*schedule.Schedule{a, b}] {
				return
			}
			told[[2]*schedule.Schedule{a, b}] = true
			if more++; more <= mostPairs {
				all = append(all, p.only(b, a).neverMeetFinding())
			}
		})
	}
	if more > mostPairs {
		all[mostPairs-1].Message += fmt.Sprintf("; and so have %d other pairs", more-mostPairs)
	}
	if every := p.only(some...); len(all) == 0 && every.share() && !every.opens() {
		return []finding{every.neverMeetFinding()}
	}
	return all
}

// strangers calls found for each pair of policies that can select the same machine and have no window together.
func (p *policies) strangers(some []*schedule.Schedule, found func(a, b *schedule.Schedule)) {
	known := map[int][]schedule.Window{} // of each kind
	windows := func(s *schedule.Schedule) []schedule.Window {
		id := p.kinds.of[s]
		if _, ok := known[id]; !ok {
			known[id] = p.only(s).ahead(schedule.DefaultHorizon)
		}
		return known[id]
	}
	for i, a := range some {
		for _, b := range some[:i] {
			if !p.kinds.share(p.only(b, a)) {
				continue
			}
			if _, meet := firstCommon(windows(b), windows(a)); !meet {
				found(a, b)
			}
		}
	}
}

// inNamespaces returns policies by their namespaces: those of different ones never select the same machine. Those of the platform are with each
// namespace that they may be for.
func (p *policies) inNamespaces(some []*schedule.Schedule) [][]*schedule.Schedule {
	out := p.ofNamespaces(some)
	var platform []*schedule.Schedule
	for _, s := range some {
		if p.selectors[s].Namespaces != nil {
			platform = append(platform, s)
		}
	}
	if len(platform) > 0 && len(out) == 0 {
		return [][]*schedule.Schedule{platform}
	}
	for i := range out {
		namespace := p.selectors[out[i][0]].Namespace
		for _, s := range platform {
			if p.selectors[s].MayBeFor(namespace) {
				out[i] = append(out[i], s)
			}
		}
	}
	return out
}

// ofNamespaces returns the policies of namespaces, by these.
func (p *policies) ofNamespaces(some []*schedule.Schedule) [][]*schedule.Schedule {
	var out [][]*schedule.Schedule
	at := map[string]int{}
	for _, s := range some {
		if p.selectors[s].Namespaces != nil {
			continue
		}
		namespace := p.selectors[s].Namespace
		i, ok := at[namespace]
		if !ok {
			i, at[namespace] = len(out), len(out)
			out = append(out, nil)
		}
		out[i] = append(out[i], s)
	}
	return out
}

// share reports whether the policies, each with each, can select the same machine.
func (p *policies) share() bool {
	if groups := p.inNamespaces(p.schedules); len(groups) > 1 || len(groups) == 1 && len(groups[0]) < len(p.schedules) {
		return false
	}
	for i, a := range p.schedules {
		for _, b := range p.schedules[:i] {
			if !p.kinds.share(p.only(b, a)) {
				return false
			}
		}
	}
	return true
}

// kinds know what was found out about policies that say the same: a fleet has thousands of a few kinds.
type kinds struct {
	// of are kinds by their windows, and selecting by their selectors.
	of, selecting map[*schedule.Schedule]int
	opened        map[int]bool
	shares        map[[2]int]bool
}

func newKinds(p *policies) *kinds {
	k := &kinds{of: map[*schedule.Schedule]int{}, selecting: map[*schedule.Schedule]int{}, opened: map[int]bool{}, shares: map[[2]int]bool{}}
	windows, selectors := map[string]int{}, map[string]int{}
	kind := func(known map[string]int, of any, namespace string) int {
		text, _ := json.Marshal(of)
		if key := string(text) + namespace; known[key] == 0 {
			known[key] = len(known) + 1
		}
		return known[string(text)+namespace]
	}
	for s, spec := range p.specs {
		namespace := ""
		if m := spec.MaintenanceSchedule; m != nil && slices.ContainsFunc(m.Exclude, func(x schedule.Exclude) bool { return x.Calendar != nil }) {
			namespace = p.selectors[s].Namespace // whose calendars they are
		}
		k.of[s] = kind(windows, []any{spec.Strategy, spec.MaintenanceSchedule}, namespace)
		of := ""
		if n := p.selectors[s].Namespaces; n != nil {
			of = "for namespaces: " + n.String()
		}
		k.selecting[s] = kind(selectors, spec.Selector, of)
	}
	return k
}

// opens reports whether a policy opens within the horizon.
func (k *kinds) opens(p *policies) bool {
	id := k.of[p.schedules[0]]
	answer, ok := k.opened[id]
	if !ok {
		answer = p.opens()
		k.opened[id] = answer
	}
	return answer
}

// share reports whether two policies can select the same machine.
func (k *kinds) share(p *policies) bool {
	a, b := p.schedules[0], p.schedules[1]
	key := [2]int{k.selecting[a], k.selecting[b]}
	answer, ok := k.shares[key]
	if !ok {
		answer = p.selectors[a].CanMeet(p.selectors[b])
		k.shares[key] = answer
	}
	return answer
}

func (p *policies) opens() bool {
	for range schedule.Windows(p.now, p.now.Add(schedule.DefaultHorizon), p.schedules...) {
		return true
	}
	return false
}

func (p *policies) neverMeetFinding() finding {
	return finding{
		Severity: lintWarning, Check: "NeverMeet", Policy: p.names(), Field: "maintenanceSchedule.permit",
		Message: "each has windows, but within 1000 days they have none together",
		Remedy:  "Let the windows meet, mind the time zones, or select different machines: one that all of them select never changes.",
	}
}
