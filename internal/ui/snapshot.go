package ui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/selection"
)

// state is how a Machine stands: the phase of its update, or one of those below.
type state string

const (
	// due: a change will touch the Machine, and no update of it has been asked for.
	due state = "Due"
	// mayWait: more Machines wait than are listed, and this may be one of them.
	mayWait state = "MayWait"
	// none: nothing was ever asked for, and nothing waits.
	none state = "None"
)

// states are all of them, those that need somebody first.
var states = []state{
	state(refitv1.PhaseFailed), state(refitv1.PhaseWaiting), state(refitv1.PhaseDraining), state(refitv1.PhaseApplying), state(refitv1.PhaseVerifying),
	state(refitv1.PhaseStaging), state(refitv1.PhasePending), due, mayWait, state(refitv1.PhaseSucceeded), none,
}

// rank is the place of a state among them.
func (s state) rank() int { return slices.Index(states, s) }

// row is a Machine, as the page lists it.
type row struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Cluster   string       `json:"cluster"`
	Role      refitv1.Role `json:"role"`
	Node      string       `json:"node,omitempty"`
	Version   string       `json:"version,omitempty"`
	State     state        `json:"state"`
	// Reason and Message say why it waits, or what has failed.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Step    string `json:"step,omitempty"`
	Done    int32  `json:"done"`
	Total   int32  `json:"total,omitempty"`
	// Since is when it began, or ended.
	Since *time.Time `json:"since,omitempty"`
	// Earliest is when it may start.
	Earliest *time.Time `json:"earliest,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty"`
	Drifted  bool       `json:"drifted,omitempty"`

	labels map[string]string
	// unlisted is of how many that wait and are not listed it may be one.
	unlisted int32
}

func (r *row) key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// clusterRows are the Machines of a Cluster, those that need somebody first.
type clusterRows struct {
	types.NamespacedName
	labels map[string]string
	// known reports that the Cluster was seen, with its labels.
	known    bool
	machines []*row
}

// snapshot is a fleet at an instant. It does not change.
type snapshot struct {
	changes  uint64
	now      time.Time
	clusters []*clusterRows
	rows     map[types.NamespacedName]*row
	pending  []refitv1.PendingChange
	// waiting are the Machines that PendingChanges list.
	waiting map[types.NamespacedName]refitv1.PendingMachine
	// unlisted is how many more wait.
	unlisted map[machinesOf]int32
	// selected has for each policy, by its title and namespace, how many Machines of which Clusters it selects, and together has the
	// sets of policies that select Machines, and how many.
	selected map[*changemanagement.Policy]map[types.NamespacedName]int
	together map[string]*policySet
	policies []*changemanagement.Policy
	// knowsSelected reports that all was read that tells which policies select which Machines.
	knowsSelected bool
}

// machinesOf are the Machines of a Cluster that have a role, or all of them without one.
type machinesOf struct {
	types.NamespacedName
	role refitv1.Role
}

// policySet are policies that together select Machines.
type policySet struct {
	policies []*changemanagement.Policy
	machines int
}

// rebuildAfter is how long after a snapshot there is another one at the earliest: a fleet that is busy changes all the time. Who asks meanwhile waits for
// it: what is older than the news that made a page ask would stay on it.
const rebuildAfter = 500 * time.Millisecond

// readTimeout bounds how long calendars are read.
const readTimeout = 10 * time.Second

// look returns how the fleet is now.
func (f *Fleet) look(ctx context.Context) (*snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil && f.changes.Load() == f.last.changes && f.knowsSelected() == f.last.knowsSelected && f.Clock.Since(f.last.now) < calendarsAgain {
		return f.last, nil
	}
	if f.last != nil {
		time.Sleep(rebuildAfter - time.Since(f.built)) // which is nothing if that is over
	}
	changes, knows := f.changes.Load(), f.knowsSelected() // before what is read
	// Whoever asks may leave: what is read is for all, and a calendar that could not be read would close its policy.
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	if err := f.readPolicies(reading); err != nil {
		return nil, err
	}
	s := &snapshot{
		changes: changes, now: f.Clock.Now(), rows: map[types.NamespacedName]*row{}, waiting: map[types.NamespacedName]refitv1.PendingMachine{},
		unlisted: map[machinesOf]int32{},
		selected: map[*changemanagement.Policy]map[types.NamespacedName]int{}, together: map[string]*policySet{}, knowsSelected: knows,
	}
	s.readPending(f)
	s.readMachines(f)
	s.readUpdates(f)
	s.markUnlisted()
	s.readClusters(f)
	if err := s.selectBy(f.policies); err != nil {
		return nil, err
	}
	f.last, f.built = s, time.Now()
	return s, nil
}

func (s *snapshot) readPending(f *Fleet) {
	listed := map[types.NamespacedName]int32{}
	each(f, func(p *refitv1.PendingChange) {
		s.pending = append(s.pending, *p)
		for _, m := range p.Status.List {
			key := types.NamespacedName{Namespace: p.Namespace, Name: m.Name}
			if _, ok := s.waiting[key]; !ok {
				listed[types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.Cluster}]++
			}
			s.waiting[key] = m
		}
	})
	for i := range s.pending {
		p := &s.pending[i]
		of := machinesOf{types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.Cluster}, p.Spec.Role}
		more := p.Status.More
		if of.role == "" { // its owners list them, too
			more = p.Status.Machines - listed[of.NamespacedName]
		}
		s.unlisted[of] += max(0, more)
	}
}

// markUnlisted marks the Machines that may be among those that wait and are not listed. Which they are, nothing says.
func (s *snapshot) markUnlisted() {
	for _, r := range s.rows {
		if r.State != state(refitv1.PhaseSucceeded) && r.State != none {
			continue
		}
		cluster := types.NamespacedName{Namespace: r.Namespace, Name: r.Cluster}
		if more := max(s.unlisted[machinesOf{cluster, r.Role}], s.unlisted[machinesOf{cluster, ""}]); more > 0 {
			r.State, r.Reason, r.Since, r.unlisted = mayWait, "", nil, more
			r.Message = fmt.Sprintf("%d more wait that are not listed: this may be one of them", more)
		}
	}
}

func (s *snapshot) readMachines(f *Fleet) {
	each(f, func(m *clusterv1.Machine) {
		r := &row{
			Namespace: m.Namespace, Name: m.Name, Cluster: m.Spec.ClusterName, Role: selection.RoleOf(m.Labels), Node: m.Status.NodeRef.Name,
			Version: m.Spec.Version, State: none, labels: m.Labels,
		}
		s.rows[r.key()] = r
		s.wait(r)
	})
}

// wait adds to a row what is known of when it may start.
func (s *snapshot) wait(r *row) {
	m, ok := s.waiting[r.key()]
	if !ok {
		return
	}
	r.State, r.Reason = due, bounded(m.Reason)
	r.Earliest = instant(m.EarliestStart)
}

func (s *snapshot) readUpdates(f *Fleet) {
	each(f, func(mu *refitv1.MachineUpdate) {
		r := s.rows[client.ObjectKeyFromObject(mu)]
		if r == nil { // the Machine is gone, or may not be seen
			r = &row{Namespace: mu.Namespace, Name: mu.Name, Cluster: mu.Labels[clusterv1.ClusterNameLabel], Role: selection.RoleOf(mu.Labels), State: none}
			s.rows[r.key()] = r
			s.wait(r)
		}
		r.update(mu)
	})
}

// update fills in how the update of a Machine stands.
func (r *row) update(mu *refitv1.MachineUpdate) {
	st := &mu.Status
	r.Drifted = meta.IsStatusConditionTrue(st.Conditions, refitv1.DriftedCondition)
	if st.ObservedDigest != mu.Spec.Digest { // what the status says is about specs that nobody wants any more
		r.State, r.Message = state(refitv1.PhasePending), "asked for, not begun" // since when is not known: the update may be older than these specs
		return
	}
	phase := cmp.Or(state(st.Phase), state(refitv1.PhasePending))
	if phase.rank() < 0 {
		phase = state(refitv1.PhasePending)
	}
	if phase == state(refitv1.PhaseSucceeded) && r.State == due {
		return // the next change waits
	}
	r.State, r.Reason, r.Message, r.Step = phase, bounded(st.Reason), bounded(st.Message), bounded(st.Step)
	if mu.Abandoned() {
		r.Reason = "Abandoned"
	}
	if phase != state(refitv1.PhaseSucceeded) {
		r.Done, r.Total, r.Deadline = min(max(st.StepsDone, 0), st.StepsTotal), max(st.StepsTotal, 0), instant(st.Deadline)
	} else {
		r.Step = ""
	}
	if phase != state(refitv1.PhaseWaiting) {
		r.Earliest = nil
	}
	switch {
	case st.FinishedAt != nil:
		r.Since = instant(st.FinishedAt)
	case st.StartedAt != nil:
		r.Since = instant(st.StartedAt)
	default:
		r.Since = instant(st.WantedSince)
	}
}

func instant(t *metav1.Time) *time.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

func (s *snapshot) readClusters(f *Fleet) {
	byName := map[types.NamespacedName]*clusterRows{}
	of := func(key types.NamespacedName) *clusterRows {
		if byName[key] == nil {
			byName[key] = &clusterRows{NamespacedName: key}
			s.clusters = append(s.clusters, byName[key])
		}
		return byName[key]
	}
	each(f, func(c *clusterv1.Cluster) {
		one := of(client.ObjectKeyFromObject(c))
		one.labels, one.known = c.Labels, true
	})
	for _, r := range s.rows {
		one := of(types.NamespacedName{Namespace: r.Namespace, Name: r.Cluster})
		one.machines = append(one.machines, r)
	}
	for _, c := range s.clusters {
		slices.SortFunc(c.machines, compareRows)
	}
	slices.SortFunc(s.clusters, func(a, b *clusterRows) int {
		return cmp.Or(cmp.Compare(a.worst(), b.worst()), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// compareRows sorts what needs somebody first, then control planes.
func compareRows(a, b *row) int {
	return cmp.Or(
		cmp.Compare(a.State.rank(), b.State.rank()), cmp.Compare(a.Role, b.Role), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Name, b.Name),
	)
}

// worst is the rank of the Machine that needs somebody most.
func (c *clusterRows) worst() int {
	if len(c.machines) == 0 {
		return len(states)
	}
	return c.machines[0].State.rank()
}

// selectBy finds out which policies select which Machines.
func (s *snapshot) selectBy(policies *changemanagement.Policies) error {
	for _, all := range policies.All() {
		s.policies = append(s.policies, all...)
	}
	slices.SortFunc(s.policies, func(a, b *changemanagement.Policy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) // those of the platform are first
	})
	for _, c := range s.clusters {
		if !c.known {
			continue
		}
		for _, r := range c.machines {
			candidate := &changemanagement.Candidate{
				Subject: inplace.Subject{Namespace: r.Namespace, Cluster: r.Cluster, Labels: r.labels}, ClusterLabels: c.labels, Role: r.Role,
			}
			selecting, err := policies.Select(candidate)
			if err != nil {
				return err
			}
			s.note(c.NamespacedName, selecting)
		}
	}
	return nil
}

// note notes the policies that select a Machine of a Cluster.
func (s *snapshot) note(cluster types.NamespacedName, selecting []*changemanagement.Policy) {
	set := ""
	for _, p := range selecting {
		if s.selected[p] == nil {
			s.selected[p] = map[types.NamespacedName]int{}
		}
		s.selected[p][cluster]++
		set += p.String() + " "
	}
	if s.together[set] == nil {
		s.together[set] = &policySet{policies: selecting}
	}
	s.together[set].machines++
}
