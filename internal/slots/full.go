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

// full says why self gets no slot, or "". held are the nodes that others disturb, and who does. What self is counts neither for
// nor against it: a node that is out already needs a slot like any other, as nobody knows whether it comes back meanwhile.
func (l Limits) full(c census, self member, held map[string]string) (string, error) {
	if self.role == refitv1.ControlPlaneRole {
		return controlPlaneFull(c[self.role], self, held), nil
	}
	return l.workersFull(c[self.role], self, held)
}

// controlPlaneFull lets one node be out at a time. With three and more the healthy ones without it must keep etcd's quorum. With
// one or two there is nothing to spare, and the API server may be away meanwhile; the most that can be asked for is that the
// other one is healthy. When etcd is external the API servers are counted alike.
func controlPlaneFull(members []member, self member, held map[string]string) string {
	var taken, ill []*member
	n := 1
	for i := range members {
		m := &members[i]
		if m.name == self.name {
			continue
		}
		n++
		switch {
		case m.slot != none, m.holder(held) != "":
			taken = append(taken, m)
		case m.ill != "":
			ill = append(ill, m)
		}
	}
	if len(taken) > 0 {
		first := slices.MinFunc(taken, byName)
		return fmt.Sprintf("control plane: node %s %s and one may be out at a time", first.nodeName(), first.engaged(held))
	}
	quorum := n/2 + 1
	switch healthy := n - 1 - len(ill); {
	case n <= 2 && len(ill) > 0:
		return fmt.Sprintf("control plane: the API server may be away while one of %d nodes is updated, so the other must be healthy, which is not: %s", n, list(ill, held))
	case n > 2 && healthy < quorum:
		return fmt.Sprintf("control plane: without node %s etcd needs %d healthy of %d nodes to keep its quorum, and these are not: %s",
			self.nodeName(), quorum, n, list(ill, held))
	default:
		return ""
	}
}

func (l Limits) workersFull(members []member, self member, held map[string]string) (string, error) {
	why, err := scope{limit: l.workers(), flag: "--max-unavailable-workers"}.full(members, self, held)
	if err != nil || why != "" || l.FailureDomain == nil || self.domain == "" {
		return why, err
	}
	return scope{domain: self.domain, limit: *l.FailureDomain, flag: "--max-unavailable-per-failure-domain"}.full(members, self, held)
}

// scope is the workers that a limit is for: those of a failure domain, or all if it is "".
type scope struct {
	domain string
	limit  intstr.IntOrString
	flag   string // where it is set
}

// full says that as many workers but self are out as the limit lets, or more. It returns "" when another one may be.
func (s scope) full(members []member, self member, held map[string]string) (string, error) {
	var out []*member
	total := 1
	for i := range members {
		m := &members[i]
		if m.name == self.name || s.domain != "" && s.domain != m.domain {
			continue
		}
		total++
		if m.slot != none || m.ill != "" || m.holder(held) != "" {
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

// engaged says what is done with a node of the control plane.
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
