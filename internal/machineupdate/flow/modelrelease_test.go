package flow_test

import (
	"fmt"

	"github.com/capi-refit/refit/internal/machineupdate/flow"
)

// workOn is what is known of the work on a node that is to be released.
func (m *model) workOn(w *work) flow.NodeWork {
	n := &m.machines[w.machine]
	switch {
	case w.seen.Machine == flow.Leaving && !m.answers(n):
		return flow.Ended
	case m.away && w.seen.Machine != flow.Leaving:
		return flow.Unreleased
	case !m.answers(n) && (w.rec.deleting || w.unasked):
		return flow.Unknown
	case !m.answers(n) || n.run != flow.Running:
		return flow.Ended
	}
	return flow.UnderWay
}

// keepsCordon reports whether a node stays cordoned that is released.
func (m *model) keepsCordon(w *work) bool {
	return w.rec.changed && (w.seen.Waits != "" || w.seen.Broken != "" || w.unasked) && !w.rec.deleting && !w.rec.abandon
}

// releaseNode releases the node. Who was overtaken has nothing to release: it reports false.
func (m *model) releaseNode(w *work, keepCordon bool) bool {
	n := &m.machines[w.machine]
	if n.version != w.rec.version {
		return false
	}
	if w.rec.marked && !keepCordon {
		n.cordoned, n.empty = false, false
	}
	m.release(w)
	return true
}

// release releases the lease, be it that of an earlier reconciliation.
func (m *model) release(w *work) {
	n := &m.machines[w.machine]
	m.leaves(w)
	if own := n.holder == w.server && n.token == w.token; own || !w.seen.Leased && n.holder > 0 {
		n.holder = 0
	}
}

// releaseOvertaken releases the lease of a reconciliation that was overtaken, if nobody goes on who needs it.
func (m *model) releaseOvertaken(w *work) {
	if n := &m.machines[w.machine]; w.seen.Leased && !n.marked && !n.atWork() {
		m.release(w)
	}
}

// laws returns one that does not hold.
func (m *model) laws() string {
	taken := 0
	for i := range m.machines {
		n := &m.machines[i]
		if n.slot {
			taken++
		}
		if n.left != "" {
			return n.left
		}
		if n.gone && n.deleted {
			continue // nobody has its node any more
		}
		if (n.cordoned || n.marked || n.changed) && !n.kept && !n.deleted {
			return fmt.Sprintf("machine %d has no finalizer, and something of refit's is on its node: %+v", i, *n)
		}
		if (n.cordoned && !n.deleted || n.run == flow.Running && n.disturbing && !n.freed) && !n.slot {
			return fmt.Sprintf("machine %d is disturbed and has no slot: %+v", i, *n)
		}
	}
	if taken > slots {
		return fmt.Sprintf("%d slots are taken", taken)
	}
	return ""
}
