package schedule

import "slices"

// set is a set of instants, in seconds of Unix, that is asked about one instant at a time. An answer holds for a while: that
// is what lets a walk over a set jump. It need not hold for as long as it could; a walk asks again.
type set interface {
	// at reports whether an instant is in the set, and until when, exclusively, that stays so. It looks for changes up to limit.
	at(t, limit int64) (in bool, until int64)

	// before reports whether the instant just before t is in the set, and since when, inclusively. It looks back to limit.
	before(t, limit int64) (in bool, since int64)
}

var (
	_ set = everything{}
	_ set = span{}
	_ set = union(nil)
	_ set = intersection(nil)
	_ set = difference{}
)

// everything is the set of all instants.
type everything struct{}

func (everything) at(_, limit int64) (bool, int64)     { return true, limit + 1 }
func (everything) before(_, limit int64) (bool, int64) { return true, limit }

// span is [start, end).
type span struct{ start, end int64 }

func (s span) at(t, limit int64) (bool, int64) {
	switch {
	case t >= s.end || s.start >= s.end:
		return false, max(limit, t) + 1
	case t < s.start:
		return false, s.start
	default:
		return true, s.end
	}
}

func (s span) before(t, limit int64) (bool, int64) {
	switch {
	case t <= s.start || s.start >= s.end:
		return false, min(limit, t-1)
	case t > s.end:
		return false, s.end
	default:
		return true, s.start
	}
}

// union is what is in any of its sets; of none, it is empty.
type union []set

func (u union) at(t, limit int64) (bool, int64) {
	return combine(u, true, func(s set) (bool, int64) { return s.at(t, limit) }, max(limit, t)+1, true)
}

func (u union) before(t, limit int64) (bool, int64) {
	return combine(u, true, func(s set) (bool, int64) { return s.before(t, limit) }, min(limit, t-1), false)
}

// intersection is what is in all of its sets; of none, it is everything.
type intersection []set

func (i intersection) at(t, limit int64) (bool, int64) {
	return combine(i, false, func(s set) (bool, int64) { return s.at(t, limit) }, max(limit, t)+1, true)
}

func (i intersection) before(t, limit int64) (bool, int64) {
	return combine(i, false, func(s set) (bool, int64) { return s.before(t, limit) }, min(limit, t-1), false)
}

// combine asks all sets. One answer that dominates decides, for as long as the longest of those holds: true in a union, false
// in an intersection. Otherwise the others decide, until the first of them changes.
func combine(sets []set, dominant bool, ask func(set) (bool, int64), end int64, forward bool) (bool, int64) {
	longer := func(a, b int64) bool { return a > b == forward && a != b }
	decided, longest, shortest := false, int64(0), end
	for _, s := range sets {
		in, until := ask(s)
		switch {
		case in != dominant:
			if longer(shortest, until) {
				shortest = until
			}
		case !decided || longer(until, longest):
			decided, longest = true, until
		}
	}
	if decided {
		return dominant, longest
	}
	return !dominant, shortest
}

// difference is what is in one set and not in the other.
type difference struct{ from, without set }

func (d difference) at(t, limit int64) (bool, int64) {
	in, until := d.from.at(t, limit)
	out, outUntil := d.without.at(t, limit)
	switch {
	case in && !out:
		return true, min(until, outUntil)
	case in:
		return false, outUntil
	case out:
		return false, max(until, outUntil)
	default:
		return false, until
	}
}

func (d difference) before(t, limit int64) (bool, int64) {
	in, since := d.from.before(t, limit)
	out, outSince := d.without.before(t, limit)
	switch {
	case in && !out:
		return true, max(since, outSince)
	case in:
		return false, outSince
	case out:
		return false, min(since, outSince)
	default:
		return false, since
	}
}

// endOf returns the first instant from t on that is not in the set. Without one up to limit it is not ok.
func endOf(s set, t, limit int64) (end int64, ok bool) {
	for t <= limit {
		in, until := s.at(t, limit)
		if !in {
			return t, true
		}
		t = until
	}
	return 0, false
}

// startOf returns the first instant of the stretch of the set that t lies in. Without one down to limit it is not ok.
func startOf(s set, t, limit int64) (start int64, ok bool) {
	t++
	for t > limit {
		in, since := s.before(t, limit)
		if !in {
			return t, true
		}
		t = since
	}
	return 0, false
}

// firstIn returns the first instant from t on that is in the set. Without one up to limit it is not ok.
func firstIn(s set, t, limit int64) (first int64, ok bool) {
	for t <= limit {
		in, until := s.at(t, limit)
		if in {
			return t, true
		}
		t = until
	}
	return 0, false
}

// lastEnd returns the last instant up to t before which the set ends: the instant just before it is in the set. Without one
// after limit it is not ok. It takes t for an end if the instant before it is in the set.
func lastEnd(s set, t, limit int64) (end int64, ok bool) {
	for t > limit {
		in, since := s.before(t, limit)
		if in {
			return t, true
		}
		t = since
	}
	return 0, false
}

// joined returns the spans in order, those that overlap or touch as one, and without those that are empty.
func joined(spans []span) []span {
	spans = slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return s.start >= s.end })
	slices.SortFunc(spans, func(a, b span) int { return int(min(max(a.start-b.start, -1), 1)) })
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 && s.start <= out[n-1].end {
			out[n-1].end = max(out[n-1].end, s.end)
			continue
		}
		out = append(out, s)
	}
	return out
}

// spans is the union of spans that are in order and apart, as joined returns them.
type spans []span

func (ss spans) at(t, limit int64) (bool, int64) {
	i, _ := slices.BinarySearchFunc(ss, t, func(s span, t int64) int {
		if s.end <= t {
			return -1
		}
		return 1
	})
	if i == len(ss) {
		return false, max(limit, t) + 1
	}
	return ss[i].at(t, limit)
}

func (ss spans) before(t, limit int64) (bool, int64) {
	i, _ := slices.BinarySearchFunc(ss, t, func(s span, t int64) int {
		if s.start < t {
			return -1
		}
		return 1
	})
	if i == 0 {
		return false, min(limit, t-1)
	}
	return ss[i-1].before(t, limit)
}
