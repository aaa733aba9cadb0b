package schedule

import (
	"fmt"
	"slices"
	"sync"
)

// scoped has all sources of a schedule of which some are for some changes only, and the schedules for those that were asked about.
type scoped struct {
	permits, excludes []Source

	mu     sync.Mutex
	of     map[asked]*Schedule
	widest *Schedule
}

// asked is a class, and what of it is known: messages tell that.
type asked struct {
	class
	kinds, disruption bool
}

// Scoped reports whether it depends on the change when the schedule is open: a permit or an exclude is for some changes only.
func (s *Schedule) Scoped() bool { return s != nil && s.scoped != nil }

// For returns the schedule as it is for a change: without the permits and the excludes that are for others. A schedule for which that makes no
// difference is returned as it is. Where scopes have a say, a schedule that Compile returns is that of a change of which nothing is known.
func (s *Schedule) For(c Class) *Schedule {
	if !s.Scoped() {
		return s
	}
	key := asked{c.class(), len(c.Kinds) > 0, c.Disruption != ""}
	all := s.scoped
	all.mu.Lock()
	defer all.mu.Unlock()
	if known := all.of[key]; known != nil {
		return known
	}
	if all.of == nil {
		all.of = map[asked]*Schedule{}
	}
	all.of[key] = s.narrowed(key.class, c)
	return all.of[key]
}

// narrowed returns a copy with those sources that count for a class.
func (s *Schedule) narrowed(key class, c Class) *Schedule {
	v := *s
	v.class = &c
	counts := func(all []Source) []Source {
		return slices.DeleteFunc(slices.Clone(all), func(src Source) bool { return !src.scope.has(key) })
	}
	v.permits, v.excludes = counts(s.scoped.permits), counts(s.scoped.excludes)
	v.join()
	return &v
}

// Widest returns the schedule that is open whenever s is for some change. It has all permits and excludes, of which some don't count for all.
func (s *Schedule) Widest() *Schedule {
	if !s.Scoped() {
		return s
	}
	all := s.scoped
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.widest != nil {
		return all.widest
	}
	v := *s
	v.class, v.permits, v.excludes = nil, all.permits, all.excludes
	v.join()
	// What several kinds at once are permitted, each of them is.
	var open union
	seen := map[string]bool{}
	for kind := range allKinds {
		for disruption := range allDisruptions {
			one := s.narrowed(class{1 << kind, disruption}, Class{})
			key := fmt.Sprint(fields(one.permits), fields(one.excludes))
			if !seen[key] && len(one.permits) > 0 {
				seen[key] = true
				open = append(open, one.open)
			}
		}
	}
	v.open = open
	all.widest = &v
	return all.widest
}

// WithoutPermits returns the schedule as it is where nothing but its excludes counts. One that lets nothing start by itself, since its list of permits is
// empty, say, or that can't be read, is returned as it is.
func (s *Schedule) WithoutPermits() *Schedule {
	if s == nil || s.err != nil || s.paused {
		return s
	}
	if len(s.permits) == 0 && (!s.Scoped() || len(s.scoped.permits) == 0) {
		return s
	}
	v := *s
	v.permits = []Source{{Policy: s.name, Text: "always, but for what is excluded", set: everything{}}}
	if !s.Scoped() {
		v.join()
		return &v
	}
	v.scoped = &scoped{permits: v.permits, excludes: s.scoped.excludes}
	unknown := Class{}
	return v.narrowed(unknown.class(), unknown)
}

func fields(all []Source) []string {
	out := make([]string, len(all))
	for i, src := range all {
		out[i] = src.Field
	}
	return out
}

// join makes the sets of what is permitted, and of what is open, out of the sources.
func (s *Schedule) join() {
	s.permit = joinedSets(s.permits)
	s.open = s.permit
	if len(s.excludes) > 0 {
		excluded := make(union, 0, len(s.excludes))
		for _, x := range s.excludes {
			excluded = append(excluded, x.set)
		}
		s.open = difference{from: s.permit, without: excluded}
	}
}

func joinedSets(permits []Source) set {
	if len(permits) == 1 {
		return permits[0].set
	}
	all := make(union, 0, len(permits))
	for _, p := range permits {
		all = append(all, p.set)
	}
	return all
}

// mostScopes is how many scopes a message names.
const mostScopes = 3

// others returns which windows don't count for the change that the schedule is for, and why; empty if all do. It does not depend on the time, so that
// a message does not change when such a window opens.
func (s *Schedule) others() string {
	if s.scoped == nil || s.class == nil {
		return ""
	}
	key := s.class.class()
	var names []string
	for _, p := range s.scoped.permits {
		if !p.scope.has(key) && !slices.Contains(names, p.scope.text) {
			names = append(names, p.scope.text)
		}
	}
	if len(names) == 0 {
		return ""
	}
	if more := len(names) - mostScopes; more > 0 {
		names = append(names[:mostScopes], fmt.Sprintf("%d others", more))
	}
	return fmt.Sprintf(" (windows for %s don't count: this one %s)", listed(names), *s.class)
}
