package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/capi-refit/refit/schedule"
)

// classFlags say about which change policies are asked.
type classFlags struct {
	kinds      []string
	disruption string
}

func (f *classFlags) add(fs *pflag.FlagSet, otherwise string) {
	fs.StringSliceVar(&f.kinds, "kind", nil, "What the change is of: "+words(schedule.Kinds())+". Can be there more than once. Counts where permits or excludes are for some changes only; "+otherwise)
	fs.StringVar(&f.disruption, "disruption", "", "The worst that the change takes on the node: "+words(schedule.Disruptions())+".")
}

func words[T ~string](all []T) string {
	out := make([]string, len(all))
	for i, w := range all {
		out[i] = string(w)
	}
	return strings.Join(out[:len(out)-1], ", ") + " or " + out[len(out)-1]
}

// class returns the change, as far as it is said.
func (f *classFlags) class() (schedule.Class, error) {
	c := schedule.Class{Disruption: schedule.Disruption(f.disruption)}
	if f.disruption != "" && !slices.Contains(schedule.Disruptions(), c.Disruption) {
		return c, fmt.Errorf("--disruption is %q and can be %s", f.disruption, words(schedule.Disruptions()))
	}
	for _, kind := range f.kinds {
		if !slices.Contains(schedule.Kinds(), schedule.Kind(kind)) {
			return c, fmt.Errorf("--kind is %q and can be %s", kind, words(schedule.Kinds()))
		}
		c.Kinds = append(c.Kinds, schedule.Kind(kind))
	}
	return c, nil
}

// said reports whether something is said of the change.
func (f *classFlags) said() bool { return len(f.kinds) > 0 || f.disruption != "" }

// view returns what schedules are as they are asked: for the change, or for whichever they suit best if nothing is said about it.
func (f *classFlags) view() (func(*schedule.Schedule) *schedule.Schedule, error) {
	c, err := f.class()
	if err != nil {
		return nil, err
	}
	if !f.said() {
		return (*schedule.Schedule).Widest, nil
	}
	return func(s *schedule.Schedule) *schedule.Schedule { return s.For(c) }, nil
}

// never warns of changes for which a policy has no window. What takes more has none that what takes less has not.
func (p *policies) never() []finding {
	whole := p.selectors[p.schedules[0]].Schedule
	if !whole.Scoped() || !p.opens() {
		return nil
	}
	most := map[schedule.Disruption][]schedule.Kind{} // kinds by the most that has a window; none if nothing has
	for _, kind := range schedule.Kinds() {
		var last schedule.Disruption
		for _, d := range schedule.Disruptions() {
			if !p.only(whole.For(schedule.Class{Kinds: []schedule.Kind{kind}, Disruption: d})).opens() {
				break
			}
			last = d
		}
		most[last] = append(most[last], kind)
	}
	var all []finding
	for _, d := range append([]schedule.Disruption{""}, schedule.Disruptions()...) {
		kinds := most[d]
		if len(kinds) == 0 || d == schedule.ReplaceDisruption {
			continue
		}
		changes := "changes"
		if len(kinds) < len(schedule.Kinds()) {
			changes += " of " + strings.Join(textsOf(kinds), ", ")
		}
		if d != "" {
			changes += " that take more than " + string(d)
		}
		all = append(all, finding{
			Severity: lintWarning, Check: "NoScope", Policy: p.names(), Field: "maintenanceSchedule.permit",
			Message: changes + " have no window within 1000 days",
			Remedy:  "Permit them, too, in a window of their own, unless they are never to start.",
		})
	}
	return all
}

func textsOf(kinds []schedule.Kind) []string {
	out := make([]string, len(kinds))
	for i, k := range kinds {
		out[i] = string(k)
	}
	return out
}
