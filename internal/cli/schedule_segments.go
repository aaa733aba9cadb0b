package cli

import (
	"slices"
	"time"

	"github.com/capi-refit/refit/schedule"
)

// state is what policies are together at an instant.
type state int

const (
	stateClosed   state = iota
	stateExcluded       // all would be open but for an exclude
	stateOpen
)

// segment is a time in which the state stays the same.
type segment struct {
	start, end time.Time
	state      state
}

// segments cuts a time where the state of the policies changes.
func (p *policies) segments(from, until time.Time) []segment {
	var all []segment
	cuts := p.boundaries(from, until)
	for i, start := range cuts[:len(cuts)-1] {
		next := segment{start, cuts[i+1], p.stateAt(start)}
		if n := len(all); n > 0 && all[n-1].state == next.state {
			all[n-1].end = next.end
			continue
		}
		all = append(all, next)
	}
	return all
}

// boundaries returns all instants at which a permit or an exclude begins or ends, in order, and the two of the time itself.
func (p *policies) boundaries(from, until time.Time) []time.Time {
	cuts := []time.Time{from, until}
	for _, s := range p.schedules {
		for _, source := range slices.Concat(s.Permits(), s.Excludes()) {
			for w := range source.Windows(from, until) {
				cuts = append(cuts, w.Start, w.End)
			}
		}
	}
	cuts = slices.DeleteFunc(cuts, func(t time.Time) bool { return t.Before(from) || t.After(until) })
	slices.SortFunc(cuts, time.Time.Compare)
	return slices.CompactFunc(cuts, time.Time.Equal)
}

func (p *policies) stateAt(t time.Time) state {
	covers := func(s schedule.Source) bool { return s.Covers(t) }
	excluded := false
	for _, s := range p.schedules {
		if !slices.ContainsFunc(s.Permits(), covers) {
			return stateClosed
		}
		excluded = excluded || !s.Covers(t)
	}
	if excluded {
		return stateExcluded
	}
	return stateOpen
}
