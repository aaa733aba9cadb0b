package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/admin"
)

const (
	// clustersPerPage and machinesPerPage are how many rows a page has.
	clustersPerPage, machinesPerPage = 50, 100
	// maxCells is how many Machines of a Cluster are shown as a cell each. Of more, only how many there are of each state is.
	maxCells = 60
)

// count is how many Machines are in a state.
type count struct {
	State    state `json:"state"`
	Machines int   `json:"machines"`
}

// reasonCount is how many Machines wait, or have failed, for a reason.
type reasonCount struct {
	Reason   string `json:"reason"`
	State    state  `json:"state"`
	Machines int    `json:"machines"`
	Text     string `json:"text"`
}

// grid is a fleet, cluster by cluster.
type grid struct {
	paged

	// Machines is how many there are, whatever their state, where the query looks.
	Machines int            `json:"machines"`
	Counts   []count        `json:"counts"`
	Reasons  []reasonCount  `json:"reasons"`
	Clusters []*gridCluster `json:"clusters"`
}

// gridCluster is one row of it.
type gridCluster struct {
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Machines  int     `json:"machines"`
	Counts    []count `json:"counts"`
	// Cells are the Machines, unless there are too many of them.
	Cells    []cell     `json:"cells,omitempty"`
	Drifted  int        `json:"drifted,omitempty"`
	Why      string     `json:"why,omitempty"`
	Earliest *time.Time `json:"earliest,omitempty"`
	LastDone *time.Time `json:"lastDone,omitempty"`
}

// cell is a Machine: its name, and the place of its state in the list of all.
type cell [2]any

// gridOf returns the Clusters that have Machines that a query looks for; without a query, all.
func (s *snapshot) gridOf(q query) grid {
	g := grid{Reasons: []reasonCount{}, Clusters: []*gridCluster{}}
	total, reasons := counter{}, map[reasonCount]int{}
	type found struct {
		*clusterRows
		rows []*row
	}
	var all []found
	for _, c := range s.clusters {
		one := found{clusterRows: c}
		for _, r := range c.machines {
			if !q.where(r) {
				continue
			}
			total[r.State]++
			g.Machines++
			if r.State == state(refitv1.PhaseWaiting) || r.State == state(refitv1.PhaseFailed) {
				reasons[reasonCount{Reason: r.Reason, State: r.State}]++
			}
			if q.how(r) {
				one.rows = append(one.rows, r)
			}
		}
		if len(one.rows) > 0 || q.empty() {
			all = append(all, one)
		}
	}
	g.Counts = total.counts()
	g.Reasons = reasonsOf(reasons)
	var shown []found
	shown, g.paged = cut(all, q.page, clustersPerPage)
	byCluster := s.pendingOf()
	for _, one := range shown {
		g.Clusters = append(g.Clusters, gridRow(one.NamespacedName, one.rows, byCluster))
	}
	return g
}

// counter counts Machines by their state.
type counter map[state]int

func (c counter) counts() []count {
	out := []count{}
	for _, s := range states {
		if c[s] > 0 {
			out = append(out, count{s, c[s]})
		}
	}
	return out
}

func reasonsOf(counts map[reasonCount]int) []reasonCount {
	out := []reasonCount{}
	for r, n := range counts {
		r.Machines = n
		r.Text = "failed: " + cmp.Or(r.Reason, "it does not say why")
		if r.State == state(refitv1.PhaseWaiting) {
			r.Text = "waiting " + admin.WaitsFor(r.Reason)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b reasonCount) int {
		return cmp.Or(cmp.Compare(a.State.rank(), b.State.rank()), cmp.Compare(b.Machines, a.Machines), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

func gridRow(name types.NamespacedName, rows []*row, pending map[types.NamespacedName]*refitv1.PendingChange) *gridCluster {
	out := &gridCluster{Namespace: name.Namespace, Name: name.Name, Machines: len(rows)}
	counts := counter{}
	for _, r := range rows {
		counts[r.State]++
		if r.Drifted {
			out.Drifted++
		}
		if len(rows) <= maxCells {
			out.Cells = append(out.Cells, cell{r.Name, r.State.rank()})
		}
	}
	out.Counts = counts.counts()
	if len(rows) > 0 {
		out.Why = whyOf(rows[0])
	}
	if i := slices.IndexFunc(rows, func(r *row) bool { return r.State == mayWait }); i > 0 { // behind another
		out.Why = strings.TrimPrefix(out.Why+"; and "+whyOf(rows[i]), "; ")
	}
	if p := pending[name]; p != nil {
		out.Earliest, out.LastDone = instant(p.Status.EarliestStart), instant(p.Status.LastDone)
	}
	return out
}

// whyOf says in a few words why a Machine waits, or that it has failed.
func whyOf(r *row) string {
	switch r.State {
	case state(refitv1.PhaseWaiting):
		return "waits " + admin.WaitsFor(r.Reason)
	case state(refitv1.PhaseFailed):
		return "failed: " + cmp.Or(r.Reason, "it does not say why")
	case due:
		return "a change waits: " + cmp.Or(r.Reason, "it does not say why")
	case mayWait:
		return fmt.Sprintf("%d more wait that are not listed", r.unlisted)
	case state(refitv1.PhaseSucceeded), none:
		return ""
	default:
		return cmp.Or(r.Step, r.Message)
	}
}

// pendingOf returns the PendingChanges that stand for a whole Cluster.
func (s *snapshot) pendingOf() map[types.NamespacedName]*refitv1.PendingChange {
	out := map[types.NamespacedName]*refitv1.PendingChange{}
	for i := range s.pending {
		if p := &s.pending[i]; p.Spec.Role == "" {
			out[types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.Cluster}] = p
		}
	}
	return out
}

// list is a list of Machines.
type list struct {
	paged

	Machines []row `json:"machines"`
}

// maxListed is how many bytes of a message a list shows.
const maxListed = 400

// listOf returns the Machines that a query looks for, those that need somebody first.
func (s *snapshot) listOf(q query) list {
	var all []*row
	for _, r := range s.rows {
		if q.where(r) && q.how(r) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, compareRows)
	out := list{Machines: []row{}}
	var shown []*row
	shown, out.paged = cut(all, q.page, machinesPerPage)
	for _, r := range shown {
		one := *r
		one.Message = shortened(one.Message, maxListed)
		out.Machines = append(out.Machines, one)
	}
	return out
}
