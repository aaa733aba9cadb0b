package flow_test

import (
	"fmt"

	"github.com/capi-refit/refit/internal/machineupdate/flow"
)

// updaters is how many extensions there are that may be registered.
const updaters = 2

// What a record has of an updater; 0 if it was not called.
const (
	atWork = 1
	done   = 2
)

// extensions are the updaters of a machine.
type extensions struct {
	registered [updaters]bool
	emptied    [updaters]bool // it is called when the pods have left
	takesDown  [updaters]bool // the node does not answer from its beginning to its end
	working    [updaters]bool // it has begun something, and not ended it
	silent     bool           // they do not answer
	noted      [updaters]int  // the specs for which the node has noted what works, before they are called
	left       string         // the law that was broken when the lease was released
}

// dark reports whether one has taken the node down.
func (e *extensions) dark() bool {
	for i := range updaters {
		if e.working[i] && e.takesDown[i] {
			return true
		}
	}
	return false
}

func (r *record) updatersNow() flow.Updaters {
	switch most := max(r.updaters[0], r.updaters[1]); {
	case r.atWork():
		return flow.AtWork
	case most == done:
		return flow.Done
	}
	return ""
}

func (r *record) atWork() bool { return r.updaters[0] == atWork || r.updaters[1] == atWork }

// unfinished are those that an update which begins takes over.
func (r *record) unfinished() (out [updaters]int) {
	for i, u := range r.updaters {
		if u == atWork {
			out[i] = atWork
		}
	}
	return out
}

// due reports whether one is to be called, of those that were registered when the specs were read.
func (m *model) due(w *work) bool {
	for i := range updaters {
		if w.registered[i] && w.rec.updaters[i] != done && !w.rec.repair {
			return true
		}
	}
	return false
}

// drainsFor reports whether pods are to leave before one is called.
func (m *model) drainsFor(w *work) bool {
	n := &m.machines[w.machine]
	for i := range updaters {
		if w.registered[i] && n.emptied[i] && w.rec.updaters[i] != done && !w.rec.repair {
			return true
		}
	}
	return false
}

// register has updaters come, go, and not answer.
func (m *model) register(n *machine) {
	i := m.IntN(updaters)
	switch m.IntN(4) {
	case 0:
		n.silent = !n.silent
	case 1:
		n.registered[i] = false
	default:
		n.registered[i] = true
		if !n.working[i] && !m.reads(n) {
			n.emptied[i], n.takesDown[i] = m.IntN(2) == 0, m.IntN(2) == 0
		}
	}
	m.note("updaters: registered %v, silent %t", n.registered, n.silent)
}

// reads reports whether a server is about to call the updaters of a machine.
func (m *model) reads(n *machine) bool {
	for _, w := range m.working {
		if &m.machines[w.machine] == n {
			return true
		}
	}
	return false
}

// turn returns whose turn it is: one that is at work goes on before others begin. It returns false if that one is not registered any more.
func (m *model) turn(w *work) (int, bool) {
	for i := range updaters {
		if w.registered[i] && (w.rec.updaters[i] == atWork || !w.rec.atWork() && w.rec.updaters[i] == 0) {
			return i, true
		}
	}
	return 0, false
}

// callUpdater calls one. It returns whether the reconciliation goes on, whether it has ended, and a law that the call breaks.
func (m *model) callUpdater(w *work) (ok, ends bool, broken string) {
	n := &m.machines[w.machine]
	i, registered := m.turn(w)
	if !registered {
		if !w.rec.atWork() {
			return true, true, "an updater was to be called, and none is due"
		}
		w.seen.Waits = "Updater"
		return true, false, ""
	}
	if w.seen.Leased && (n.holder != w.server || n.token != w.token) {
		w.seen.Waits = "Lease"
		return true, false, ""
	}
	if n.version != w.rec.version { // it is read again before each call
		return false, true, ""
	}
	if broken := m.mayNotCall(w, i); broken != "" {
		return true, true, broken
	}
	if w.rec.updaters[i] == 0 && !m.write(w, func(r *record) { r.updaters[i], r.changed = atWork, true }) {
		return false, true, ""
	}
	if n.silent || m.loses() {
		n.working[i] = n.working[i] || !n.silent
		w.seen.Waits = "Updater"
		return true, false, ""
	}
	if n.working[i] = m.IntN(3) > 0; n.working[i] {
		return true, true, ""
	}
	ok = m.write(w, func(r *record) { r.updaters[i] = done })
	s := &w.seen
	s.Connected, s.Last, s.Busy, s.Plan, s.Noted, s.Admitted, s.Allowed, s.Spared, s.Works = false, "", false, flow.Plan{}, false, false, false, false, false
	s.Due = m.due(w)
	return ok, false, ""
}

// noteWorks has the node note what works. It returns the law that this breaks.
func (m *model) noteWorks(w *work) string {
	n := &m.machines[w.machine]
	i, registered := m.turn(w)
	switch {
	case !registered || w.rec.updaters[i] == atWork:
		return "what works was to be noted, and no updater is about to begin"
	case !w.seen.Leased || !w.seen.Allowed:
		return "what works was noted without the lease, or without the question whether somebody holds the node"
	case !m.answers(n) || m.loses():
		w.seen.Waits = flow.Unreachable
	case w.token < n.claimed:
		w.seen.Waits = "SSH" // the node refuses who is not the last
	case n.run == flow.Running:
		n.claimed = w.token
		w.seen.Waits = "Busy"
	default:
		n.claimed, n.noted[i], w.seen.Works = w.token, w.rec.asked, true
	}
	return ""
}

// mayNotCall returns the law that a call breaks.
func (m *model) mayNotCall(w *work, i int) string {
	n := &m.machines[w.machine]
	begins := w.rec.updaters[i] == 0
	switch {
	case w.rec.updaters[i] == done:
		return "an updater was called again that had said for these specs that it was done"
	case w.seen.Machine != flow.Present || w.unasked:
		return "an updater was called for a Machine that is not to be touched"
	case !w.seen.Leased && (begins || w.seen.Workload != flow.Away):
		return "an updater was called without the lease"
	case w.seen.Leased && !w.seen.Allowed:
		return "an updater was called without the question whether somebody holds the node"
	case !begins:
		return ""
	case n.noted[i] != w.rec.asked:
		return "an updater was called before the node had noted what works"
	case n.run == flow.Running && !n.freed:
		return "an updater was called while the node was at work"
	case w.rec.atWork():
		return "two updaters are at work"
	case w.rec.admission == "":
		return "an updater was called for which nobody was asked"
	case n.emptied[i] && (w.rec.admission != flow.Disturbing || !w.rec.slot || !n.empty || !w.seen.Spared):
		return "an updater that drains was called without admission, slot or the question whether the cluster can do without the node, or with pods"
	}
	return ""
}

// leaves records that refit leaves a node on which an updater is at work, though nobody has given that up.
func (m *model) leaves(w *work) {
	if n := &m.machines[w.machine]; n.atWork() && !n.deleted && !n.deleting && !w.rec.abandon {
		n.left = fmt.Sprintf("the lease was released while an updater was at work: %+v", n.record)
	}
}
