package flow_test

import (
	"fmt"

	"github.com/capi-refit/refit/internal/machineupdate/flow"
)

// step has a reconciliation do what is decided, and returns a law that this breaks.
func (m *model) step(w *work) (broken string) {
	n, s := &m.machines[w.machine], m.state(w)
	c, reason := flow.Decide(s)
	if (c == flow.Wait || c == flow.Fail) && reason == "" {
		return fmt.Sprintf("%s without a reason: %+v", c, s)
	}
	if c == flow.Wait && s.Updaters == flow.AtWork && s.Asked && s.Waits == "" && s.Work != flow.Unreleased { // who gives it up waits until the node can be released
		return fmt.Sprintf("an updater that is at work is held back by a policy: %+v", s)
	}
	if w.commands++; w.commands > 100 {
		return fmt.Sprintf("the decision does not end: %s, %+v", c, s)
	}
	m.note("%d: server %d, machine %d: %s", m.now, w.server, w.machine, c)
	if w.seen.Connected && w.node != n.node { // the connection is to a node that is gone
		m.end(w)
		return ""
	}
	ok, ends := true, false
	switch c {
	case flow.FindMachine:
		m.find(w)
		w.seen.Asked = !n.withdrawn || w.rec.repair && w.rec.observed == w.rec.asked
		w.unasked = !w.seen.Asked
	case flow.FindOwners:
		m.find(w)
	case flow.AskWork, flow.AskLogin:
		w.seen.Work = m.workOn(w)
	case flow.ReleaseMachine:
		n.freed = true
		ok = m.releaseNode(w, true) && m.write(w, func(r *record) {
			r.slot, r.marked, r.draining, r.drained, r.changed, r.admission, r.updaters = false, false, false, false, false, "", [updaters]int{}
		})
		n.working = [updaters]bool{}
		w.seen.Released = ok
	case flow.AwaitWorkload:
		w.seen.Waits = "Workload"
	case flow.AddFinalizer:
		ok = m.write(w, func(r *record) { r.kept = true })
	case flow.Begin:
		ok = m.write(w, func(r *record) {
			*r = record{
				version: r.version, asked: r.asked, observed: r.asked, kept: r.kept, slot: r.slot, marked: r.marked, draining: r.draining, changed: r.changed,
				repair: r.repair && r.observed == r.asked, updaters: r.unfinished(),
			}
		})
	case flow.ReadSpecs:
		w.registered = n.registered
		w.seen.Specs, w.seen.Due = true, m.due(w)
	case flow.NoteWorks:
		broken = m.noteWorks(w)
	case flow.CallUpdater:
		ok, ends, broken = m.callUpdater(w)
	case flow.AwaitNode:
		w.seen.Waits = "Busy"
	case flow.AskPolicies:
		w.seen.Window, w.seen.Current = flow.Open, true
		if m.closed != "" {
			w.seen.Window = m.closed
		}
	case flow.FindAccess:
		w.seen.Access = true
	case flow.RollBack:
		ok, ends = m.rollBack(w)
	case flow.CheckRepair:
		m.checkRepair(w)
	case flow.RefuseDrift:
		w.seen.Waits = "Drift"
	case flow.ReachWorkload:
		switch {
		case !m.away:
			w.seen.Workload = flow.Reached
		case w.rec.changed:
			w.seen.Workload = flow.Away
		default:
			w.seen.Waits = "Workload"
		}
	case flow.TakeSlot:
		ok = m.takeSlot(w)
	case flow.Lock:
		m.lock(w)
	case flow.Connect:
		if w.seen.Connected = m.answers(n); !w.seen.Connected {
			w.seen.Waits = flow.Unreachable
		}
	case flow.Look:
		if w.rec.rebootingSince != 0 {
			ok = m.write(w, func(r *record) { r.rebootingSince = 0 })
		}
		e := flow.Quiet
		if n.shows != w.rec.asked || n.acted {
			e = n.effect
		}
		drains := e == flow.Disturbing && n.drains
		if m.drainsFor(w) {
			e, drains = flow.Disturbing, true
		}
		w.seen.Plan = flow.Plan{
			Known: true, Effect: e, Drains: drains,
			Stages: n.mustStage(w.rec.asked), Source: true, Early: n.early, Refused: n.drifted && n.refuses && !w.rec.repair,
		}
	case flow.AskNode:
		w.seen.Last, w.seen.Busy = n.last(w.rec), n.run == flow.Running && n.runOf != w.rec.asked
	case flow.Note:
		w.seen.Noted = true
		ok = m.write(w, func(r *record) {
			if r.planned = w.seen.Plan.Effect; r.planned == flow.Disturbing && r.admission == flow.Quiet {
				r.admission = ""
			}
		})
	case flow.GoOn:
		if w.seen.Last == flow.Idle && !w.rec.draining && w.rec.updatersNow() == "" {
			return "an admission was used for work that had not begun"
		}
		w.seen.Admitted, w.seen.Window = true, flow.Open
		ok = m.write(w, func(r *record) { r.marked = r.marked || r.admission == flow.Disturbing })
	case flow.AdmitQuiet:
		if w.seen.Plan.Effect != flow.Quiet {
			return "what disturbs a node was admitted as if it did not"
		}
		w.seen.Admitted, w.seen.Window = true, flow.Open
		ok = m.write(w, func(r *record) { r.admission = flow.Quiet })
	case flow.Admit:
		if m.closed != "" {
			w.seen.Waits = "Window"
			break
		}
		if ok = m.takeSlot(w); !ok || w.seen.Waits != "" {
			break
		}
		w.seen.Admitted, w.seen.Window = true, flow.Open
		ok = m.write(w, func(r *record) { r.admission, r.marked = flow.Disturbing, true })
	case flow.Check:
		switch w.seen.Allowed = n.holder == w.server && n.token == w.token; {
		case !w.seen.Allowed && n.holder == -1:
			w.seen.Waits = "Hold"
		case !w.seen.Allowed:
			w.seen.Waits = "Lease"
		}
	case flow.Spare:
		m.spare(w)
	case flow.Protect:
		w.seen.Protected = true
	case flow.Drain:
		if !w.seen.Leased || !w.seen.Allowed || !w.seen.Protected {
			return "pods were asked to leave without the lease, or before others were kept off"
		}
		if ok = m.write(w, func(r *record) { r.draining = true }); !ok {
			break
		}
		n.cordoned = true
		if ends = m.IntN(2) == 0; !ends {
			n.empty, w.seen.Allowed, w.seen.Spared = true, false, false
			ok = m.write(w, func(r *record) { r.drained = true })
		}
	case flow.Work:
		if lost := n.holder != w.server || n.token != w.token; w.seen.Leased && lost && !w.seen.InProgress() {
			w.seen.Waits = "Lease"
			break
		}
		w.underWay = w.seen.Last == flow.Running && w.rec.attempted
		if w.seen.Leased {
			ok = m.write(w, func(r *record) { r.changed, r.attempted = true, true })
		}
		if ok {
			broken = m.work(w)
		}
	case flow.TakeFailure:
		w.seen.Broken, w.took = "NodeFailed", true
	case flow.Verify:
		if w.seen.Verified = n.shows == w.rec.asked; !w.seen.Verified {
			w.seen.Broken = "NotVerified"
		}
	case flow.BringNode:
		if w.seen.Brought = w.seen.Leased; !w.seen.Leased {
			w.seen.Waits = "Workload"
		}
	case flow.AwaitReady:
		w.seen.Ready = true
	case flow.ReleaseNode:
		if m.away {
			w.seen.Work = flow.Unreleased
			break
		}
		keep := m.keepsCordon(w)
		if !keep && w.rec.drained { // nobody who has read the record before takes the pods to have left
			ok = m.write(w, func(r *record) { r.drained = false })
		}
		ok = ok && m.releaseNode(w, keep)
		w.seen.Released = ok
	default:
		ends = true
		ok, broken = m.conclude(w, c)
	}
	if !ok && !w.lost {
		m.releaseOvertaken(w)
	}
	if !ok || ends {
		m.end(w)
	}
	return broken
}

// last is what a node says of its last work for specs.
func (n *machine) last(r record) flow.Run {
	switch {
	case n.run == "" || n.runOf != r.asked || !r.attempted && n.run != flow.Running:
		return flow.Idle
	case n.run == flow.RunFailed && n.acted:
		return flow.FailedBefore
	}
	return n.run
}

func (m *model) takeSlot(w *work) bool {
	if w.rec.slot {
		w.seen.Slot = true
		return true
	}
	taken := 0
	for i := range m.machines {
		if m.machines[i].slot {
			taken++
		}
	}
	if taken >= slots {
		w.seen.Waits = "Slot"
		return true
	}
	w.seen.Slot = true
	return m.write(w, func(r *record) { r.slot = true })
}

func (m *model) lock(w *work) {
	n := &m.machines[w.machine]
	switch n.holder {
	case -1: // the lease is refit's, whichever of its servers takes it
		w.seen.Waits = "Hold"
	default:
		n.holder, n.until = w.server, m.now+lapse
		n.token++
		if m.loses() {
			w.seen.Waits = "Workload"
			return
		}
		w.token, w.seen.Leased = n.token, true
	}
}

// work has the node begin, or go on.
func (m *model) work(w *work) string {
	n := &m.machines[w.machine]
	token := w.token
	if !w.seen.Leased {
		token = n.runToken
	}
	if !m.answers(n) {
		w.seen.Waits = flow.Unreachable
		return ""
	}
	if token < n.claimed {
		w.seen.Waits = "SSH" // the node refuses who is not the last
		return ""
	}
	if n.run == flow.Running && n.runOf != w.rec.asked {
		w.seen.Waits = "Busy"
		return ""
	}
	n.claimed = token
	if n.run == flow.RunFailed && n.runOf == w.rec.asked && (token <= n.runToken || w.underWay) {
		w.seen.Ran = flow.RunFailed // the node does nothing twice for the same token, nor for who has seen it under way
		return ""
	}
	again := n.run == flow.Succeeded && n.shows != n.runOf && token > n.runToken && !w.underWay // the node finds what is still to do
	if last := n.last(w.rec); last != flow.Running && last != flow.Succeeded || again {
		disturbs := n.effect == flow.Disturbing && n.shows != w.rec.asked
		if w.seen.Plan.Known && disturbs && w.seen.Plan.Effect != flow.Disturbing {
			w.seen.Waits = "Changed" // the node begins nothing that takes more than what was permitted
			return ""
		}
		switch {
		case !w.seen.Leased || !w.seen.Allowed || n.holder == -1:
			return "work began without the lease"
		case n.token != token: // another server has acquired the lease since
			return "two disturb one node"
		case w.unasked:
			return "work began that nobody asks for"
		case n.run == flow.RunFailed && n.runOf == w.rec.asked && !n.acted && !n.told:
			return "work that had failed began again before anybody was told"
		case disturbs && w.rec.admission != flow.Disturbing:
			return "a node was disturbed for which nobody was asked"
		case disturbs && n.drains && !n.empty:
			return "a node was disturbed with its pods"
		case disturbs && !w.rec.slot:
			return "a node was disturbed without a slot"
		}
		if broken := m.mayNotBegin(w, disturbs); broken != "" {
			return broken
		}
		n.run, n.runOf, n.runToken, n.disturbing, n.acted = flow.Running, w.rec.asked, token, disturbs, false
		n.told, n.freed = false, false
		if disturbs && n.reboots {
			n.down = m.now + m.IntN(overdue+3)
		}
	}
	if n.run == flow.Running && n.down <= m.now && m.IntN(3) > 0 {
		n.finishRun()
	}
	switch {
	case n.down > m.now:
		w.seen.Waits = flow.Unreachable
	case n.run == flow.Running || m.loses():
		w.seen.Waits = "SSH" // the connection is lost meanwhile
	default:
		w.seen.Ran = n.run
	}
	return ""
}

// conclude does the commands that end a reconciliation.
func (m *model) conclude(w *work, c flow.Command) (bool, string) {
	n := &m.machines[w.machine]
	switch c {
	case flow.Wait:
		return m.write(w, func(r *record) {
			if r.waits = true; w.seen.Released && !r.changed {
				r.slot, r.marked, r.draining, r.drained, r.admission = false, false, false, false, ""
			}
		}), ""
	case flow.Withdraw:
		return m.write(w, func(r *record) {
			if r.slot, r.marked, r.draining, r.drained = r.slot && r.changed, r.marked && r.changed, r.draining && r.changed, r.drained && r.changed; r.changed {
				n.acted = true // it says what the node has
				r.failed, r.observed, r.retry = true, r.asked, false
				return
			}
			r.asked, r.observed = n.shows, n.shows // it is about what the node has again
			r.admission, r.succeeded, r.retry, r.repair = "", true, false, false
		}), ""
	case flow.AwaitBoot:
		return m.write(w, func(r *record) {
			if r.rebootingSince == 0 {
				r.rebootingSince = max(1, m.clock(w.server))
			}
		}), ""
	case flow.RemoveFinalizer:
		if n.deleting && !n.deleted {
			n.acted, n.working = true, [updaters]bool{} // whoever deletes it abandons it
		}
		return m.write(w, func(r *record) {
			if r.kept = false; r.deleting {
				*r = record{version: r.version, gone: true}
			}
		}), ""
	case flow.Fail:
		if !w.seen.Released {
			return true, "an update failed whose node was not released"
		}
		n.acted, n.told = n.acted || w.took, true
		return m.write(w, func(r *record) {
			r.failed, r.observed, r.retry, r.rebootingSince = true, r.asked, false, 0
			if !r.changed {
				r.marked, r.draining, r.drained = false, false, false
			}
		}), ""
	case flow.WithdrawRepair:
		if !w.seen.Released {
			return true, "a repair was withdrawn whose node was not released"
		}
		return m.write(w, func(r *record) {
			*r = record{version: r.version, asked: r.asked, observed: r.asked, kept: r.kept, succeeded: true, deleting: r.deleting}
		}), ""
	case flow.Abandon:
		n.freed, n.told, n.working = true, true, [updaters]bool{} // whoever abandons it looks after what is left
		return m.write(w, func(r *record) {
			r.abandon, r.slot, r.marked, r.draining, r.drained, r.changed, r.admission = false, false, false, false, false, false, ""
			r.updaters = [updaters]int{}
			r.failed, r.waits, r.rebootingSince = true, false, 0 // who abandons it knows that it has not ended well
		}), ""
	case flow.Succeed:
		if n.shows != w.rec.asked && !n.drifted { // by hand, after it was proven
			return true, fmt.Sprintf("succeeded without proof: the node shows %d", n.shows)
		}
		return m.write(w, func(r *record) {
			*r = record{version: r.version, asked: r.asked, observed: r.asked, kept: r.kept, succeeded: true}
		}), ""
	case flow.LookAgain, flow.Stop, flow.Stay, flow.AbandonLater:
		return true, ""
	case flow.Stage:
		return true, m.stage(w)
	case flow.StageNext:
		return true, ""
	default:
		return true, "a command that the model does not know: " + string(c)
	}
}
