package flow_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/capi-refit/refit/internal/machineupdate/flow"
)

// The model is a cluster of machines whose updates two servers make by what flow.Decide says. It is a fake of everything but the
// decision: the records, the leases, the nodes. Whatever a server has seen dies with it.

const (
	machines = 3
	slots    = 1
	servers  = 2
	// lapse is how long a lease is good for that nobody renews.
	lapse = 5
	// overdue is how long a node may take to reboot.
	overdue = 20
)

// record is what the API server has of an update. Specs are numbers, and so are times: of the clock of the server that wrote them.
type record struct {
	version, asked, observed                                               int
	kept, succeeded, failed, attempted, draining, drained, marked, changed bool
	slot, retry, abandon, rollback, waits                                  bool
	deleting, gone, repair                                                 bool
	rebootingSince                                                         int
	planned, admission                                                     flow.Effect
	updaters                                                               [updaters]int
}

// clean reports whether nothing of refit's is on the Machine, on the Node and on the node itself.
func (r *record) clean() bool { return !r.marked && !r.draining && !r.changed }

// abandonable reports whether a person may give the update up.
func (r *record) abandonable() bool {
	return r.observed == r.asked && (r.failed || r.waits && (r.changed || r.slot) || r.atWork() && !r.succeeded)
}

// machine is a node with its lease, and what is asked for.
type machine struct {
	record
	deleted, withdrawn bool
	node               int // each Machine of the name has another
	latest             int // the specs that were asked for last
	shows              int // the specs that the node has
	effect             flow.Effect
	drains, fails      bool
	lies               bool // the node reports that it has done what it has not
	run                flow.Run
	runOf, runToken    int
	disturbing         bool // by the work
	acted              bool // the failure was acted upon
	told               bool // people were told that it failed, or that the node did not come back in time
	cordoned, empty    bool
	claimed            int // the highest token that the node has seen
	holder             int // of the lease: a server, 0 for nobody, -1 for somebody else
	token, until       int
	unreachable        bool
	reboots            bool // by the work
	down               int  // until when it does
	freed              bool // by a person, although work may go on there
	trouble
	extensions
}

// answers reports whether the node can be logged in to.
func (m *model) answers(n *machine) bool { return !n.unreachable && n.down <= m.now && !n.dark() }

// work is a reconciliation that is under way.
type work struct {
	server, machine int
	node            int // that the Machine had
	rec             record
	seen            flow.Seen
	token           int
	unasked         bool // as the Machine was read
	underWay        bool // the work of this try was seen under way
	lost            bool // the answer to what it has asked for
	registered      [updaters]bool
	stalled         bool // it has waited for long
	took            bool // that the work on the node has failed
	commands        int
}

type model struct {
	*rand.Rand
	now      int
	ahead    [servers + 1]int // how far the clock of each server is
	closed   flow.Window      // "" while everything may start
	away     bool             // the workload cluster's API server
	calm     bool             // nothing is in the way any more
	machines [machines]machine
	working  []*work
	history  []string
}

func newModel(seed uint64) *model {
	m := &model{Rand: rand.New(rand.NewPCG(seed, 1))}
	for i := range m.machines {
		m.machines[i].latest = 1
		m.machines[i].asked = 1
		m.change(&m.machines[i])
		m.register(&m.machines[i])
	}
	return m
}

// change makes what is asked for one that disturbs the node, or not.
func (m *model) change(n *machine) {
	n.effect = []flow.Effect{flow.Quiet, flow.Disturbing, flow.Disturbing}[m.IntN(3)]
	disturbs := n.effect == flow.Disturbing
	n.reboots = disturbs && m.IntN(3) == 0
	n.drains = n.reboots || disturbs && m.IntN(2) == 0
	n.stages, n.early = m.IntN(4) == 0, m.IntN(2) == 0
}

// clock is what a server's clock shows.
func (m *model) clock(server int) int { return m.now + m.ahead[server] }

func (m *model) note(format string, args ...any) {
	m.history = append(m.history, fmt.Sprintf(format, args...))
}

// state is what a server knows.
func (m *model) state(w *work) flow.State {
	r := &w.rec
	seen := w.seen
	seen.Preempted = seen.Waits == "Hold" || seen.Waits == "Window" || seen.Waits == "Ill" && !r.changed
	return flow.State{Seen: seen, Record: flow.Record{
		Deleted:  r.deleting,
		Finished: r.observed == r.asked && (r.succeeded || r.failed && !r.retry && !r.abandon && !r.rollback),
		New:      r.observed != r.asked || r.retry,
		Kept:     r.kept, Failed: r.failed, Abandon: r.abandonable() && r.abandon, Rollback: r.rollback,
		Stalled: w.stalled && r.draining && !r.changed,
		Lost:    w.stalled && r.changed && seen.Waits == flow.Unreachable,
		Changed: r.changed, Clean: r.clean(), Repair: r.repair,
		Reboots:   r.changed && m.machines[w.machine].reboots,
		Overdue:   r.rebootingSince != 0 && m.clock(w.server)-r.rebootingSince > overdue,
		Attempted: r.attempted, Draining: r.draining, Drained: r.drained,
		Planned: r.planned, Admission: r.admission, Marked: r.marked, Updaters: r.updatersNow(),
	}}
}

// write writes a record. It reports whether the server knows that it has: nobody else has written since it was read, and the answer
// was not lost.
func (m *model) write(w *work, change func(*record)) bool {
	of := &m.machines[w.machine].record
	if of.version != w.rec.version {
		return false
	}
	change(&w.rec)
	w.rec.version++
	*of = w.rec
	w.lost = m.loses()
	return !w.lost
}

// loses reports whether an answer gets lost.
func (m *model) loses() bool { return !m.calm && m.IntN(30) == 0 }

// begin has a server reconcile a machine, if it does not already.
func (m *model) begin(server, of int) {
	for _, w := range m.working {
		if w.server == server && w.machine == of {
			return
		}
	}
	if n := &m.machines[of]; !n.gone {
		m.working = append(m.working, &work{server: server, machine: of, node: n.node, rec: n.record, stalled: m.IntN(4) == 0})
	}
}

// end ends a reconciliation.
func (m *model) end(w *work) {
	for i := range m.working {
		if m.working[i] == w {
			m.working = append(m.working[:i], m.working[i+1:]...)
			return
		}
	}
}

// kill ends a server. Its leases lapse.
func (m *model) kill(server int) {
	m.note("server %d is killed", server)
	var left []*work
	for _, w := range m.working {
		if w.server != server {
			left = append(left, w)
		}
	}
	m.working = left
}

// pass lets time pass. Servers that are there renew what they hold; what they do takes no time.
func (m *model) pass(ticks int) {
	m.now += ticks
	for _, w := range m.working {
		if n := &m.machines[w.machine]; w.seen.Leased && n.holder == w.server && n.token == w.token {
			n.until = m.now + lapse
		}
	}
	for i := range m.machines {
		if n := &m.machines[i]; n.run == flow.Running && n.down <= m.now && m.IntN(2) == 0 {
			n.finishRun()
		}
	}
}

// finishRun ends the work on a node. What fails is put back.
func (n *machine) finishRun() {
	if n.fails {
		n.run = flow.RunFailed
		return
	}
	if n.run = flow.Succeeded; !n.lies {
		n.shows, n.drifted = n.runOf, false
	}
}

// something happens that no server does.
func (m *model) something() {
	n := &m.machines[m.IntN(machines)]
	switch m.IntN(22) {
	case 0:
		m.kill(1 + m.IntN(servers))
	case 1:
		m.closed = []flow.Window{"", flow.Closed, flow.ClosedToAll}[m.IntN(3)]
		m.note("the window is closed: %q", m.closed)
	case 2:
		m.edit(n)
	case 3:
		n.unreachable = !n.unreachable
	case 4:
		m.away = !m.away
	case 5:
		if n.holder == 0 || n.until < m.now && n.holder > 0 {
			n.holder = -1
			m.note("somebody else holds a node")
		}
	case 6:
		if n.holder == -1 {
			n.holder = 0
		}
	case 7:
		n.withdrawn = m.IntN(3) == 0
	case 8:
		n.fails, n.lies = m.IntN(3) == 0, m.IntN(5) == 0
	case 9:
		if n.failed {
			n.retry, n.version = true, n.version+1
		}
	case 10:
		if n.abandonable() {
			n.abandon, n.version = true, n.version+1
		}
	case 11:
		server := 1 + m.IntN(servers)
		m.ahead[server] = m.IntN(4*overdue) - 2*overdue
		m.note("the clock of server %d jumps to %d", server, m.clock(server))
	case 12:
		m.deleteUpdate(n)
	case 13:
		n.deleted = n.deleted || m.IntN(3) == 0
	case 20, 21:
		m.register(n)
	case 14, 15, 16:
		m.happens(n)
	default:
		m.pass(1 + m.IntN(lapse+2))
	}
	m.goes(n)
}

// edit asks for other specs. A MachineUpdate that is not there is made.
func (m *model) edit(n *machine) {
	if n.deleted {
		return
	}
	n.latest++
	if n.gone {
		n.record = record{version: n.version + 1}
	}
	n.asked = n.latest
	n.version++
	m.change(n)
	m.note("other specs are asked for: %+v", n.record)
}

// deleteUpdate asks for the deletion of a MachineUpdate. Without finalizer it is gone.
func (m *model) deleteUpdate(n *machine) {
	if n.gone || n.deleting {
		return
	}
	m.note("a MachineUpdate is deleted: %+v", n.record)
	n.deleting, n.gone, n.version = true, !n.kept, n.version+1
}

// goes has what is gone follow what it belongs to: a MachineUpdate its Machine, and another Machine of the name a Machine that is gone.
func (m *model) goes(n *machine) {
	switch {
	case !n.deleted && n.gone && m.IntN(2) == 0: // Cluster API asks again
		n.record = record{version: n.version + 1, asked: n.latest}
	case n.deleted && n.gone:
		*n = machine{record: record{version: n.version + 1, asked: 1}, latest: 1, node: n.node + 1}
		m.change(n)
		m.note("another Machine has the name")
	case n.deleted && n.clean():
		m.deleteUpdate(n)
	}
}

// live lives a history, and returns the law that it broke.
func (m *model) live() string {
	for range 150 {
		switch {
		case m.IntN(6) == 0:
			m.something()
		case len(m.working) == 0 || m.IntN(4) == 0:
			m.begin(1+m.IntN(servers), m.IntN(machines))
		default:
			if broken := m.step(m.working[m.IntN(len(m.working))]); broken != "" {
				return broken
			}
		}
		if broken := m.laws(); broken != "" {
			return broken
		}
	}
	return m.settle()
}

// settle ends all that is in the way. Then each update has to end.
func (m *model) settle() string {
	m.note("nothing is in the way any more")
	m.closed, m.away, m.calm, m.ahead = "", false, true, [servers + 1]int{}
	for i := range m.machines {
		n := &m.machines[i]
		n.withdrawn, n.unreachable, n.fails, n.lies = false, false, false, false
		n.registered, n.silent = [updaters]bool{true, true}, false
		n.clear()
		if n.holder == -1 {
			n.holder = 0
		}
	}
	for range 60 {
		for i := range m.machines {
			if n := &m.machines[i]; n.failed && !n.retry { // somebody looks after what has failed
				n.retry, n.version = true, n.version+1
			}
			m.goes(&m.machines[i])
			m.repair(&m.machines[i])
			m.begin(1, i)
		}
		for len(m.working) > 0 {
			if broken := m.step(m.working[0]); broken != "" {
				return broken
			}
			if broken := m.laws(); broken != "" {
				return broken
			}
		}
		m.pass(lapse + 1)
	}
	for i := range m.machines {
		if n := &m.machines[i]; !n.succeeded || n.deleting || n.shows != n.asked || n.cordoned || n.slot || n.holder != 0 && n.until >= m.now {
			return fmt.Sprintf("machine %d does not come to an end: %+v", i, *n)
		}
	}
	return ""
}

func requireLawful(t *testing.T, seed uint64) {
	t.Helper()
	m := newModel(seed)
	if broken := m.live(); broken != "" {
		t.Fatalf("seed %d: %s\n%s", seed, broken, strings.Join(m.history, "\n"))
	}
}

var histories = flag.Int("histories", 1500, "how many histories TestModel has updates live through")

// TestModel has updates live through random histories of kills, lost answers and connections, edits, withdrawals, deletions of
// MachineUpdates and of Machines, holds, closed windows, reboots and clocks that jump, made by two servers at once: never is a node
// disturbed without lease, slot, admission or with its pods, never are more disturbed than there are slots, nothing succeeds without
// proof, nothing of refit's outlives its MachineUpdate, and all comes to an end when nothing is in the way any more. Nodes are ill, drift and
// are brought back, and fetch what they need; Machines are paused. Registered updaters come and go, do not answer, and take nodes down: none begins
// without lease, admission and what it asks of slot and pods, nor while the node is at work; none is called again after it was done; and no
// node is left on which one is at work, unless a person gives it up.
func TestModel(t *testing.T) {
	for seed := range uint64(*histories) {
		requireLawful(t, seed)
	}
}

// FuzzModel does so with as many histories as there is time for.
func FuzzModel(f *testing.F) {
	f.Fuzz(requireLawful)
}
