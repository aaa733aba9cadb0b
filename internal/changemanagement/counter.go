package changemanagement

import (
	"slices"
	"time"
)

// counter counts what updates do under a policy.
type counter struct {
	running, failed int
	waiting         map[*record]bool
	// starts are those that may still count. They are in order if sorted says so.
	starts []time.Time
	sorted bool
}

// startsCount is for how long starts may count against maxStartsPerWindow: for longer than any period is, also of days that a time zone makes long. Of
// those that are older the latest counts against minSpacing.
const startsCount = 3 * longestPeriod

// countable returns the starts of an update that may still count.
func countable(now time.Time, starts []time.Time) []time.Time {
	var out []time.Time
	for _, at := range starts {
		if now.Sub(at) <= startsCount {
			out = append(out, at)
		}
	}
	if len(out) == 0 && len(starts) > 0 {
		return []time.Time{slices.MaxFunc(starts, time.Time.Compare)}
	}
	return out
}

func (c *counter) add(r *record) {
	c.count(r, 1)
	if r.waiting {
		c.waiting[r] = true
	}
	for _, at := range r.counted {
		n := len(c.starts)
		c.sorted = n == 0 || c.sorted && !at.Before(c.starts[n-1])
		c.starts = append(c.starts, at)
	}
}

func (c *counter) remove(r *record) {
	c.count(r, -1)
	delete(c.waiting, r)
	for _, at := range r.counted {
		if i, found := slices.BinarySearchFunc(c.inOrder(), at, time.Time.Compare); found {
			c.starts = slices.Delete(c.starts, i, i+1)
		}
	}
}

func (c *counter) count(r *record, by int) {
	if r.running {
		c.running += by
	}
	if r.failed {
		c.failed += by
	}
}

// inOrder returns the starts in their order.
func (c *counter) inOrder() []time.Time {
	if !c.sorted {
		slices.SortFunc(c.starts, time.Time.Compare)
		c.sorted = true
	}
	return c.starts
}

// tally returns what counts, of starts those since an instant. self is the record of the update that asks, or nil: it does not count itself, but for its
// starts.
func (c *counter) tally(self *record, since time.Time) tally {
	starts := c.inOrder()
	i, _ := slices.BinarySearchFunc(starts, since, time.Time.Compare)
	t := tally{running: c.running, failed: c.failed, starts: len(starts) - i}
	if len(starts) > 0 {
		t.last = starts[len(starts)-1]
	}
	if self != nil && self.running {
		t.running--
	}
	if self != nil && self.failed {
		t.failed--
	}
	return t
}
