package flow_test

import (
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
)

// record is what the API server has of an update. Specs are numbers.
type record struct {
	version, asked, observed                                               int
	kept, succeeded, failed, attempted, draining, drained, marked, changed bool
	slot, retry, abandon                                                   bool
	planned, admission                                                     flow.Effect
}

// machine is a node with its lease, and what is asked for.
type machine struct {
	record
	deleted, withdrawn bool
	shows              int // the specs that the node has
	effect             flow.Effect
	drains, fails      bool
	lies               bool // the node reports that it has done what it has not
	run                flow.Run
	runOf, runToken    int
	disturbing         bool // by the work
	acted              bool // the failure was acted upon
	cordoned, empty    bool
	claimed            int // the highest token that the node has seen
	holder             int // of the lease: a server, 0 for nobody, -1 for somebody else
	token, until       int
	unreachable        bool
}

// work is a reconciliation that is under way.
type work struct {
	server, machine int
	rec             record
	seen            flow.Seen
	token           int
	unasked         bool // as the Machine was read
	underWay        bool // the work of this try was seen under way
	commands        int
}

type model struct {
	*rand.Rand
	now      int
	closed   bool // the window
	away     bool // the workload cluster's API server
	machines [machines]machine
	working  []*work
	history  []string
}

func newModel(seed uint64) *model {
	m := &model{Rand: rand.New(rand.NewPCG(seed, 1))}
	for i := range m.machines {
		m.machines[i].asked, m.machines[i].effect = 1, flow.Disturbing
		if m.IntN(4) == 0 {
			m.machines[i].effect = flow.Quiet
		}
		m.machines[i].drains = m.machines[i].effect == flow.Disturbing && m.IntN(2) == 0
	}
	return m
}

func (m *model) note(format string, args ...any) {
	m.history = append(m.history, fmt.Sprintf(format, args...))
}

// state is what a server knows.
func (m *model) state(w *work) flow.State {
	r := &w.rec
	return flow.State{Seen: w.seen, Record: flow.Record{
		Finished: r.observed == r.asked && (r.succeeded || r.failed) && !r.retry && !r.abandon,
		New:      r.observed != r.asked || r.retry,
		Kept:     r.kept, Failed: r.failed, Abandon: r.abandon && r.failed,
		Attempted: r.attempted, Draining: r.draining, Drained: r.drained,
		Planned: r.planned, Admission: r.admission, Marked: r.marked,
	}}
}

// write writes a record. It reports whether that could be done: nobody else has written since it was read.
func (m *model) write(w *work, change func(*record)) bool {
	of := &m.machines[w.machine].record
	if of.version != w.rec.version {
		return false
	}
	change(&w.rec)
	w.rec.version++
	*of = w.rec
	return true
}

// begin has a server reconcile a machine, if it does not already.
func (m *model) begin(server, of int) {
	for _, w := range m.working {
		if w.server == server && w.machine == of {
			return
		}
	}
	m.working = append(m.working, &work{server: server, machine: of, rec: m.machines[of].record})
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
		if n := &m.machines[i]; n.run == flow.Running && m.IntN(2) == 0 {
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
		n.shows = n.runOf
	}
}

// something happens that no server does.
func (m *model) something() {
	n := &m.machines[m.IntN(machines)]
	switch m.IntN(13) {
	case 0:
		m.kill(1 + m.IntN(servers))
	case 1:
		m.closed = !m.closed
		m.note("the window is closed: %t", m.closed)
	case 2:
		n.asked++
		n.version++
		n.effect = []flow.Effect{flow.Quiet, flow.Disturbing}[m.IntN(2)]
		n.drains = n.effect == flow.Disturbing && m.IntN(2) == 0
		m.note("other specs are asked for: %+v", n.record)
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
		if n.failed {
			n.abandon, n.version = true, n.version+1
		}
	default:
		m.pass(1 + m.IntN(lapse+2))
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
	m.closed, m.away = false, false
	for i := range m.machines {
		n := &m.machines[i]
		n.withdrawn, n.unreachable, n.fails, n.lies = false, false, false, false
		if n.holder == -1 {
			n.holder = 0
		}
	}
	for range 60 {
		for i := range m.machines {
			if n := &m.machines[i]; n.failed && !n.retry { // somebody looks after what has failed
				n.retry, n.version = true, n.version+1
			}
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
		if n := &m.machines[i]; !n.succeeded || n.shows != n.asked || n.cordoned || n.slot || n.holder != 0 && n.until >= m.now {
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

// TestModel has updates live through 1,000 histories of kills, lost connections, edits, withdrawals, holds and closed windows, made by two
// servers at once: never is a node disturbed without lease, slot, admission or with its pods, never are more disturbed than there are slots,
// nothing succeeds without proof, and all comes to an end when nothing is in the way any more.
func TestModel(t *testing.T) {
	for seed := range uint64(1000) {
		requireLawful(t, seed)
	}
}

// FuzzModel does so with as many histories as there is time for.
func FuzzModel(f *testing.F) {
	f.Fuzz(requireLawful)
}
