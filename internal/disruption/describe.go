package disruption

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// BuiltIn is where a rule comes from that no policy has made.
const BuiltIn = "built-in"

// Described is a rule as people read it.
type Described struct {
	// Kind is File, Unit, a domain, or Probe.
	Kind string
	// Name is the path of files, or the name of a unit or a probe.
	Name string
	// Actions such as "Restart kubelet.service" or "Drain (at most 10m0s)", in the order in which they are done. Of a probe it is what
	// is asked.
	Actions []string
	// From is BuiltIn, or the names of the policies that the rule comes from.
	From string
}

// Describe returns the rules that count, in an order that depends on nothing but them: files by their paths, units by their
// names, then the domains, and what is asked of the node.
func (r Rules) Describe() []Described {
	var out []Described
	files, units := entries{}, entries{}
	for _, f := range r.Files {
		files.set(f.Path, f.Actions, f.From)
	}
	for path, e := range files.sorted() {
		out = append(out, describe("File", path, e.actions, e.origin()))
	}
	for _, u := range r.Units {
		units.set(u.Name, Merge([]Action{{Type: DaemonReload}}, u.Actions), u.From)
	}
	for name, e := range units.sorted() {
		out = append(out, describe("Unit", name, e.actions, e.origin()))
	}
	for _, d := range domains {
		if actions, ok := r.Domains[d]; ok {
			out = append(out, describe(string(d), "", actions, r.DomainsFrom[d]))
		}
	}
	for _, p := range r.Probes {
		out = append(out, p.describe())
	}
	return out
}

func describe(kind, name string, actions []Action, from string) Described {
	d := Described{Kind: kind, Name: name, From: cmp.Or(from, BuiltIn)}
	for _, a := range slices.SortedStableFunc(slices.Values(actions), compare) {
		text := strings.Replace(a.String(), " "+UnitOfPath, " the unit", 1)
		if a.Timeout > 0 {
			text += fmt.Sprintf(" (at most %s)", a.Timeout)
		}
		d.Actions = append(d.Actions, text)
	}
	return d
}
