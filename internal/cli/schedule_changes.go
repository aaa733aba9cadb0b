package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/schedule"
)

// windows returns the windows of policies in the days that are simulated.
func (s *simulation) windows(p *policies) []schedule.Window {
	return slices.Collect(schedule.Windows(s.from, s.until, p.schedules...))
}

// change is what becomes of windows that have something to do with one another.
type change struct {
	kind          changeKind
	before, after []schedule.Window
}

type changeKind string

const (
	added      changeKind = "added"
	removed    changeKind = "removed"
	moved      changeKind = "moved"
	shortened  changeKind = "shortened"
	lengthened changeKind = "lengthened"
	split      changeKind = "split"
	joined     changeKind = "joined"
	rearranged changeKind = "rearranged" // several windows became several others
)

// changes compares the windows of the policies with those of the policies as they would be. It looks a day further on both
// sides, so that a window that is moved over the edge does not count as gone.
func (s *simulation) changes() []change {
	wide := simulation{from: s.from.AddDate(0, 0, -1), until: s.until.AddDate(0, 0, 1)}
	all := compareWindows(wide.windows(s.policies), wide.windows(s.changed))
	return slices.DeleteFunc(all, func(c change) bool {
		return !slices.ContainsFunc(slices.Concat(c.before, c.after), func(w schedule.Window) bool {
			return w.Start.Before(s.until) && (w.End.IsZero() || w.End.After(s.from))
		})
	})
}

// compareWindows groups windows that overlap, and says what becomes of each group, in order. What stays as it is, is left out.
// A window that goes and one that comes, no more than a day apart, are one that is moved.
func compareWindows(before, after []schedule.Window) []change {
	var all []change
	for len(before) > 0 || len(after) > 0 {
		c := takeGroup(&before, &after)
		if c.kind = c.classify(); c.kind != "" {
			all = append(all, c)
		}
	}
	return joinMoves(all)
}

// takeGroup takes the earliest windows that overlap one another.
func takeGroup(before, after *[]schedule.Window) change {
	var g group
	if len(*before) > 0 && (len(*after) == 0 || !(*after)[0].Start.Before((*before)[0].Start)) {
		g.take(before, &g.before)
	} else {
		g.take(after, &g.after)
	}
	for g.take(before, &g.before) || g.take(after, &g.after) {
	}
	return g.change
}

// group is a change that still grows. It reaches to end, or has none.
type group struct {
	change
	end       time.Time
	unbounded bool
}

// take takes the first of some windows if it overlaps the group, or begins it.
func (g *group) take(from, to *[]schedule.Window) bool {
	if len(*from) == 0 {
		return false
	}
	w := (*from)[0]
	begins := len(g.before)+len(g.after) == 0
	if !begins && !g.unbounded && !w.Start.Before(g.end) {
		return false
	}
	*from, *to = (*from)[1:], append(*to, w)
	g.unbounded = g.unbounded || w.End.IsZero()
	g.end = latest(g.end, w.End)
	return true
}

// classify returns what becomes of the group, or nothing if it stays.
func (c change) classify() changeKind {
	switch {
	case len(c.before) == 0:
		return added
	case len(c.after) == 0:
		return removed
	case len(c.before) > 1 && len(c.after) > 1:
		return rearranged
	case len(c.before) > 1:
		return joined
	case len(c.after) > 1:
		return split
	default:
		return becomes(c.before[0], c.after[0])
	}
}

// becomes returns how one window turns into another that overlaps it, or nothing if it is the same.
func becomes(before, after schedule.Window) changeKind {
	start, end := after.Start.Compare(before.Start), compareEnds(after, before)
	switch {
	case start == 0 && end == 0:
		return ""
	case start >= 0 && end <= 0:
		return shortened
	case start <= 0 && end >= 0:
		return lengthened
	default:
		return moved
	}
}

// compareEnds compares when windows end; one without an end is the last.
func compareEnds(a, b schedule.Window) int {
	if a.End.IsZero() || b.End.IsZero() {
		return cmp.Compare(boolInt(a.End.IsZero()), boolInt(b.End.IsZero()))
	}
	return a.End.Compare(b.End)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// joinMoves takes a window that is removed and the next, which is added, for one that is moved if they start within a day.
func joinMoves(all []change) []change {
	var out []change
	for i := 0; i < len(all); i++ {
		c := all[i]
		if i+1 < len(all) && apart(c, all[i+1]) <= 24*time.Hour {
			next := all[i+1]
			c = change{kind: moved, before: append(c.before, next.before...), after: append(c.after, next.after...)}
			i++
		}
		out = append(out, c)
	}
	return out
}

// apart returns how long after a window that goes, or comes, one comes, or goes.
func apart(a, b change) time.Duration {
	switch {
	case a.kind == removed && b.kind == added:
		return b.after[0].Start.Sub(a.before[0].Start)
	case a.kind == added && b.kind == removed:
		return b.before[0].Start.Sub(a.after[0].Start)
	default:
		return 1<<63 - 1
	}
}

// describe returns what becomes of the windows, in words.
func (c change) describe(loc *time.Location) string {
	list := func(windows []schedule.Window) string {
		var all []string
		for _, w := range windows {
			all = append(all, between(w, loc))
		}
		return strings.Join(all, "; ")
	}
	switch c.kind {
	case added:
		return fmt.Sprintf("%s: %s", c.kind, list(c.after))
	case removed:
		return fmt.Sprintf("%s: %s", c.kind, list(c.before))
	default:
		return fmt.Sprintf("%s: %s -> %s", c.kind, list(c.before), list(c.after))
	}
}
