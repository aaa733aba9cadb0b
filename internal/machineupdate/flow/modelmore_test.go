package flow_test

import "github.com/capi-refit/refit/internal/machineupdate/flow"

// trouble is what else may be with a machine.
type trouble struct {
	ill     bool // its Node is not Ready
	paused  bool // nobody is to touch the Machine
	stages  bool // the work needs something on the node's disk
	early   bool // which may be brought there before the window opens
	staged  int  // the specs for which that is there
	drifted bool // somebody has changed the node by hand
	refuses bool // such a node is not to be updated
	repairs bool // such a node is to be brought back
}

// clear takes away what is in the way of an update.
func (t *trouble) clear() { t.ill, t.paused, t.refuses, t.repairs = false, false, false, true }

// happens has more happen that no server does.
func (m *model) happens(n *machine) {
	switch m.IntN(7) {
	case 5:
		if !n.succeeded && !n.gone && n.observed == n.asked {
			n.rollback, n.version = true, n.version+1
		}
	case 0:
		n.ill = !n.ill
		m.note("a node is ill: %t", n.ill)
	case 1:
		n.paused = !n.paused
		m.note("a Machine is paused: %t", n.paused)
	case 2:
		n.refuses, n.repairs = m.IntN(3) == 0, m.IntN(2) == 0
	case 3, 4:
		if n.run != flow.Running {
			n.shows, n.drifted = 0, true
			m.note("somebody changes a node by hand")
		}
	default:
		m.repair(n)
	}
}

// repair has a node that has drifted brought back, if a policy asks for it.
func (m *model) repair(n *machine) {
	if n.drifted && n.repairs && !n.refuses && n.succeeded && !n.deleting && !n.paused && n.observed == n.asked {
		n.record = record{version: n.version + 1, asked: n.asked, observed: n.observed, kept: n.kept, repair: true}
		m.note("a node that has drifted is to be brought back")
	}
}

// find reads the Machine.
func (m *model) find(w *work) {
	n := &m.machines[w.machine]
	switch {
	case n.paused:
		w.seen.Machine, w.seen.Waits = flow.HeldBack, "Paused"
	case n.deleted:
		w.seen.Machine, w.seen.Late = flow.Leaving, m.IntN(3) == 0
	default:
		w.seen.Machine = flow.Present
	}
}

// mustStage reports whether something is to be brought to the node's disk for specs.
func (n *machine) mustStage(specs int) bool { return n.stages && n.shows != specs && n.staged != specs }

// spare finds out whether the cluster can do without a node. One that is out already makes nothing worse.
func (m *model) spare(w *work) {
	n := &m.machines[w.machine]
	w.seen.Spared = true
	if !w.rec.slot || w.rec.draining && n.cordoned && w.rec.changed {
		return
	}
	for i := range m.machines {
		if i != w.machine && m.machines[i].ill && !m.machines[i].gone {
			w.seen.Spared, w.seen.Waits = false, "Ill"
		}
	}
}

// mayNotBegin returns the law that work breaks which begins.
func (m *model) mayNotBegin(w *work, disturbs bool) string {
	n, plan := &m.machines[w.machine], w.seen.Plan
	switch {
	case w.seen.Machine != flow.Present:
		return "work began on a Machine that is not to be touched"
	case disturbs && !w.seen.Spared:
		return "a node was disturbed without the question whether the cluster can do without it"
	case plan.Refused && w.seen.Last == flow.Idle && !w.rec.draining:
		return "work began on a node that has drifted, which a policy refuses"
	case w.rec.atWork() || w.seen.Due:
		return "work began on the node before its updaters were done"
	case n.mustStage(w.rec.asked):
		return "work began before what it needs was on the node's disk"
	}
	return ""
}

// checkRepair looks whether a policy still asks for a repair that has not begun.
func (m *model) checkRepair(w *work) {
	n := &m.machines[w.machine]
	w.seen.Wanted = w.rec.attempted || w.rec.changed || n.repairs && !n.refuses
	w.seen.Unwanted = !w.seen.Wanted
}

// rollBack asks for what the owner wants now, if the objects can be written.
func (m *model) rollBack(w *work) (ok, ends bool) {
	n := &m.machines[w.machine]
	switch {
	case w.rec.attempted && n.run == flow.Running:
		w.seen.RolledBack = true // what runs ends first
	case !m.calm && m.IntN(3) == 0:
		w.seen.Waits = "Rollback"
	default:
		latest := n.latest + 1
		ok = m.write(w, func(r *record) { r.asked, r.rollback = latest, false })
		if n.asked == latest {
			n.latest = latest
			m.change(n)
		}
		return ok, true
	}
	return true, false
}

// stage has a node fetch what it needs, which takes a while.
func (m *model) stage(w *work) string {
	n := &m.machines[w.machine]
	if w.seen.Window != flow.Open && !w.seen.Plan.Early {
		return "a node fetched what it needs before it may"
	}
	if m.IntN(3) > 0 {
		n.staged = w.rec.asked
	}
	return ""
}
