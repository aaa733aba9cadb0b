package disruption

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
)

// PolicyRules are the rules of one policy.
type PolicyRules struct {
	// Name of the policy.
	Name string
	// Rules are what the policy says, and nothing else: what is built in is not among them.
	Rules Rules
}

// Override returns base with the rules of policies over it, entry by entry: what policies say about a path, a unit or a domain
// replaces what base says about the same one, and of the rest base holds. What several policies say about one is merged, with
// the longest timeouts. Of what becomes of failures the most careful counts: Stop, then Rollback, then Reboot. Of the times for which
// nodes are watched the longest counts, and of those for which a login is awaited the shortest. All probes count. The result does not depend on the order of
// the policies, and shares nothing with them or with base.
func Override(base Rules, policies ...PolicyRules) Rules {
	files, units, domains := entries{}, entries{}, entries{}
	for _, r := range base.Files {
		files.set(r.Path, r.Actions, r.From)
		files.unsafe(r.Path, r.Unsafe)
	}
	for _, u := range base.Units {
		units.set(u.Name, u.Actions, u.From)
	}
	for d, actions := range base.Domains {
		domains.set(string(d), actions, base.DomainsFrom[d])
	}
	said := join(policies)
	maps.Copy(files, said.files)
	maps.Copy(units, said.units)
	maps.Copy(domains, said.domains)

	out := Rules{
		OnFailure: cmp.Or(said.onFailure, base.OnFailure), Soak: clone(cmp.Or(said.soak, base.Soak)),
		Domains: map[Domain][]Action{}, DomainsFrom: map[Domain]string{},
	}
	out.ConfirmWithin = cmp.Or(shortestWait(policies), base.ConfirmWithin)
	out.Probes = mergeProbes(base.Probes, policies)
	for path, e := range files.sorted() {
		out.Files = append(out.Files, Rule{Path: path, Actions: e.actions, From: e.origin(), Unsafe: e.unsafe})
	}
	for name, e := range units.sorted() {
		out.Units = append(out.Units, UnitRule{Name: name, Actions: e.actions, From: e.origin()})
	}
	for d, e := range domains.sorted() {
		out.Domains[Domain(d)] = e.actions
		if len(e.from) > 0 {
			out.DomainsFrom[Domain(d)] = e.origin()
		}
	}
	return out
}

// joined is what policies say together.
type joined struct {
	files, units, domains entries
	onFailure             OnFailure
	soak                  *time.Duration
}

// join returns what policies say together.
func join(policies []PolicyRules) joined {
	said := joined{files: entries{}, units: entries{}, domains: entries{}}
	for _, p := range policies {
		for _, r := range p.Rules.Files {
			_, others := said.files[r.Path]
			unsafe := r.Unsafe && (!others || said.files[r.Path].unsafe)
			said.files.add(r.Path, r.Actions, p.Name)
			said.files.unsafe(r.Path, unsafe)
		}
		for _, u := range p.Rules.Units {
			said.units.add(u.Name, u.Actions, p.Name)
		}
		for d, actions := range p.Rules.Domains {
			said.domains.add(string(d), actions, p.Name)
		}
		said.onFailure = moreCareful(said.onFailure, p.Rules.OnFailure)
		if soak := p.Rules.Soak; soak != nil && (said.soak == nil || *soak > *said.soak) {
			said.soak = soak
		}
	}
	return said
}

func clone(d *time.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	return new(*d)
}

// shortestWait returns the shortest time for which one of the policies has a login be awaited, or 0: the sooner a node is put back that
// nobody comes in to, the better.
func shortestWait(policies []PolicyRules) (shortest time.Duration) {
	for _, p := range policies {
		if d := p.Rules.ConfirmWithin; d > 0 && (shortest == 0 || d < shortest) {
			shortest = d
		}
	}
	return shortest
}

// moreCareful returns which of two answers to failures is the more careful one. One that is not known is taken for Stop, which
// does nothing.
func moreCareful(a, b OnFailure) OnFailure {
	order := []OnFailure{"", RebootOnFailure, RollbackOnFailure, StopOnFailure}
	i, j := slices.Index(order, a), slices.Index(order, b)
	if i < 0 || j < 0 {
		return StopOnFailure
	}
	return order[max(i, j)]
}

// entry is what is said about one path, unit or domain.
type entry struct {
	actions []Action
	// from are the names of who says it, in order.
	from []string
	// unsafe reports that all who say it say that, too.
	unsafe bool
}

func (e entry) origin() string { return strings.Join(e.from, ", ") }

// entries are what is said, by path, name or domain.
type entries map[string]entry

// set says something in the place of what was said.
func (es entries) set(key string, actions []Action, from string) {
	e := entry{actions: slices.Clone(actions)}
	if from != "" {
		e.from = []string{from}
	}
	es[key] = e
}

// unsafe says of an entry whether it is.
func (es entries) unsafe(key string, unsafe bool) {
	e := es[key]
	e.unsafe = unsafe
	es[key] = e
}

// add says something beside what was said.
func (es entries) add(key string, actions []Action, from string) {
	e := es[key]
	e.actions = Merge(e.actions, actions)
	e.from = slices.Compact(slices.Sorted(slices.Values(append(e.from, from))))
	es[key] = e
}

// sorted yields the entries in the order of their keys.
func (es entries) sorted() iter.Seq2[string, entry] {
	return func(yield func(string, entry) bool) {
		for _, key := range slices.Sorted(maps.Keys(es)) {
			if !yield(key, es[key]) {
				return
			}
		}
	}
}
