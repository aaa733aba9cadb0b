package slots

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// named is how many nodes a message names.
const named = 5

// question is what is asked for a Machine.
type question int

const (
	// toTake asks for a slot.
	toTake question = iota
	// toBegin asks, for a Machine that has a slot and on whose node nothing was changed, whether the others can still do without it. If
	// not, it gives its node and its slot back.
	toBegin
	// toGoOn asks the same when the node may be half changed. It keeps what it has meanwhile.
	toGoOn
)

// full returns why self gets no slot, or may not use the one that it has; "" if it may. held are the nodes that others disturb, and who
// does. A node that is down already takes nothing from anybody, and its update may be what mends it: it needs a slot, so that only as
// many are mended at once, but does not wait until others that are ill as well are mended by somebody else. Nor does it wait for one whose update
// has failed: nobody works there, and the slot that is kept for it is to spare those that are well.
func (l Limits) full(q question, c census, self member, held map[string]string) (string, error) {
	why, err := "", error(nil)
	if self.role == refitv1.ControlPlaneRole {
		why = controlPlaneFull(q, c[self.role], self, held)
	} else {
		why, err = l.workersFull(q, c[self.role], self, held)
	}
	if err != nil || why != "" || q != toTake {
		return why, err
	}
	return c.soaking(self), nil
}

// soaking returns why no next node of the cluster is taken, of whatever role, or "": one is watched that may yet show that the change breaks
// nodes. Those that have a slot by then go on, and one that is down has nothing left to break: its update may be what mends it.
func (c census) soaking(self member) string {
	if self.down {
		return ""
	}
	var all []*member
	for _, members := range c {
		for i := range members {
			if m := &members[i]; m.soaks && m.name != self.name {
				all = append(all, m)
			}
		}
	}
	if len(all) == 0 {
		return ""
	}
	first := slices.MinFunc(all, byName)
	return fmt.Sprintf("node %s is watched until its soak has ended (MachineUpdate %s), and no next node of the cluster is taken before that", first.nodeName(), first.name)
}

// controlPlaneFull lets one node be out at a time. With three and more the healthy ones without it must keep etcd's quorum. With
// one or two there is nothing to spare, and the API server may be away meanwhile; the most that can be asked for is that the
// other one is healthy. When etcd is external the API servers are counted alike. A node that has a slot is not asked whether others have
// one, which would have two wait for each other: what they take counts as not healthy.
func controlPlaneFull(q question, members []member, self member, held map[string]string) string { //nolint:cyclop // one rule after the other
	var taken, ill []*member
	n := 1
	for i := range members {
		m := &members[i]
		if m.name == self.name {
			continue
		}
		n++
		switch engaged := m.slot != none || m.holder(held) != ""; {
		case engaged && q == toTake && (!self.down || !m.idle(held)):
			taken = append(taken, m)
		case engaged, m.ill != "":
			ill = append(ill, m)
		}
	}
	if len(taken) > 0 {
		first := slices.MinFunc(taken, byName)
		return fmt.Sprintf("control plane: node %s %s and one may be out at a time", first.nodeName(), first.engaged(held))
	}
	quorum := n/2 + 1
	switch healthy := n - 1 - len(ill); {
	case self.down:
		return ""
	case n <= 2 && len(ill) > 0:
		return fmt.Sprintf("control plane: the API server may be away while one of %d nodes is updated, so the other must be healthy, which is not: %s", n, list(ill, held))
	case n > 2 && healthy < quorum:
		return fmt.Sprintf("control plane: without node %s etcd needs %d healthy of %d nodes to keep its quorum, and these are not: %s",
			self.nodeName(), quorum, n, list(ill, held))
	default:
		return ""
	}
}

func (l Limits) workersFull(q question, members []member, self member, held map[string]string) (string, error) {
	why, err := scope{limit: l.workers(), flag: "--max-unavailable-workers"}.full(q, members, self, held)
	if err != nil || why != "" || l.FailureDomain == nil || self.domain == "" {
		return why, err
	}
	return scope{domain: self.domain, limit: *l.FailureDomain, flag: "--max-unavailable-per-failure-domain"}.full(q, members, self, held)
}

// scope is the workers that a limit is for: those of a failure domain, or all if it is "".
type scope struct {
	domain string
	limit  intstr.IntOrString
	flag   string // where it is set
}

// full returns why no other worker may be out, or "" if self may. Of those that are out, the ones that are only ill do not count against
// a node that is down itself.
func (s scope) full(q question, members []member, self member, held map[string]string) (string, error) { //nolint:cyclop // one rule after the other
	var out []*member
	total := 1
	for i := range members {
		m := &members[i]
		if m.name == self.name || s.domain != "" && s.domain != m.domain {
			continue
		}
		total++
		switch engaged := m.slot != none || m.holder(held) != ""; {
		case self.down && m.idle(held):
		case engaged && m.before(self, q, held), !engaged && m.ill != "" && !self.down:
			out = append(out, m)
		}
	}
	most, err := scale(s.limit, total)
	if err != nil || len(out) < most {
		return "", err
	}
	nodes := "nodes"
	if s.domain != "" {
		nodes += " in failure domain " + s.domain
	}
	return fmt.Sprintf("workers: %d of %d %s may be out at once (%s %s), and these are: %s", most, total, nodes, s.flag, s.limit.String(), list(out, held)), nil
}

// idle reports whether a member has a slot because its update has failed, and nobody works on its node.
func (m *member) idle(held map[string]string) bool { return m.slot == failed && m.holder(held) == "" }

// before reports whether a worker that is engaged counts against another one. Those that have slots must not wait for each other: one that
// may be half changed waits for none of them. Of those that can still give their nodes back only as many do as are too many, the last by
// name.
func (m *member) before(self member, q question, held map[string]string) bool {
	switch q {
	case toTake:
		return true
	case toBegin:
		return m.slot != updating || m.changed || m.holder(held) != "" || m.name < self.name
	default:
		return false
	}
}

// list names the first of some members, and why each is out.
func list(some []*member, held map[string]string) string {
	slices.SortFunc(some, byName)
	var texts []string
	for _, m := range some[:min(len(some), named)] {
		texts = append(texts, fmt.Sprintf("%s (%s)", m.name, m.why(held)))
	}
	if len(some) > named {
		texts = append(texts, "and others")
	}
	return strings.Join(texts, ", ")
}

func byName(a, b *member) int { return strings.Compare(a.name, b.name) }

// why says in brief why the member is out.
func (m *member) why(held map[string]string) string {
	switch who := m.holder(held); {
	case m.slot == failed:
		return "its update failed; refit retry or refit abandon " + m.name
	case m.slot == updating:
		return "updating"
	case who != "":
		return "held by " + who
	default:
		return m.ill
	}
}

// engaged returns what is done with a node of the control plane.
func (m *member) engaged(held map[string]string) string {
	switch m.slot {
	case failed:
		return fmt.Sprintf("keeps its slot as its update failed (MachineUpdate %s; refit retry or refit abandon %s)", m.name, m.name)
	case updating:
		return fmt.Sprintf("is being updated (MachineUpdate %s)", m.name)
	default:
		return "is held by " + m.holder(held)
	}
}

// holder returns who holds the member's node, or "".
func (m *member) holder(held map[string]string) string {
	if m.node == "" {
		return ""
	}
	return held[m.node]
}

func (m *member) nodeName() string {
	if m.node == "" {
		return m.name
	}
	return m.node
}
