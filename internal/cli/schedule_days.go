package cli

import "time"

// quarter is what all offsets of zones are multiples of, and so the hours of a day, too.
const quarter = 15 * time.Minute

// noon returns noon of a day, some days after that of an instant. It is there on each day, as midnight is not.
func noon(t time.Time, loc *time.Location, days int) time.Time {
	y, m, d := t.In(loc).Date()
	return time.Date(y, m, d+days, 12, 0, 0, 0, loc)
}

// startOfDay returns the first instant of the day whose noon it is. That is not midnight where the clocks skip it.
func startOfDay(noon time.Time) time.Time {
	start := noon
	for noon.Add(-24 * time.Hour).Before(start) {
		before := start.Add(-quarter)
		if before.Day() != noon.Day() {
			break
		}
		start = before
	}
	return start
}

// hourCell is what happens in an hour of the local time: how long it is, 0 if the clocks skip it, and how long it is open.
type hourCell struct {
	total, open, excluded time.Duration
	// opens is how long it is closed now and would be open, closes the other way round.
	opens, closes time.Duration
}

// mark returns the character that stands for the hour.
func (c hourCell) mark() byte {
	switch {
	case c.total == 0:
		return ' '
	case c.opens > 0 && c.closes > 0:
		return '*'
	case c.opens > 0:
		return '+'
	case c.closes > 0:
		return '-'
	case c.open == c.total:
		return '#'
	case c.open > 0:
		return '~'
	case c.excluded > 0:
		return 'x'
	default:
		return '.'
	}
}

// hours are the cells of a day.
type hours [24]hourCell

// fill adds what a time is to the hours that it lies in.
func (h *hours) fill(from, until time.Time, loc *time.Location, add func(cell *hourCell, d time.Duration)) {
	for from.Before(until) {
		next := from.Truncate(quarter).Add(quarter)
		if next.After(until) {
			next = until
		}
		add(&h[from.In(loc).Hour()], next.Sub(from))
		from = next
	}
}

// hoursOf returns the cells of the day whose noon it is.
func (s *simulation) hoursOf(noon time.Time, current, changed []segment) *hours {
	var h hours
	from, until := startOfDay(noon), startOfDay(noon.AddDate(0, 0, 1))
	h.fill(from, until, s.loc, func(c *hourCell, d time.Duration) { c.total += d })
	shown := current
	if s.changed != nil {
		shown = changed
		h.add(from, until, s.loc, subtract(changed, current), func(c *hourCell, d time.Duration) { c.opens += d })
		h.add(from, until, s.loc, subtract(current, changed), func(c *hourCell, d time.Duration) { c.closes += d })
	}
	h.add(from, until, s.loc, only(shown, stateOpen), func(c *hourCell, d time.Duration) { c.open += d })
	h.add(from, until, s.loc, only(shown, stateExcluded), func(c *hourCell, d time.Duration) { c.excluded += d })
	return &h
}

// add adds the part of segments that lies in a day.
func (h *hours) add(from, until time.Time, loc *time.Location, segments []segment, add func(cell *hourCell, d time.Duration)) {
	for _, g := range segments {
		if start, end := latest(g.start, from), earliest(g.end, until); start.Before(end) {
			h.fill(start, end, loc, add)
		}
	}
}

func only(segments []segment, s state) []segment {
	var all []segment
	for _, g := range segments {
		if g.state == s {
			all = append(all, g)
		}
	}
	return all
}

// subtract returns what is open in a and not in b. Both cover the same time without a hole.
func subtract(a, b []segment) []segment {
	var all []segment
	for _, x := range only(a, stateOpen) {
		for _, y := range b {
			if y.state == stateOpen {
				continue
			}
			if start, end := latest(x.start, y.start), earliest(x.end, y.end); start.Before(end) {
				all = append(all, segment{start, end, stateOpen})
			}
		}
	}
	return all
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
