package changemanagement

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
)

// record is an update as budgets see it.
type record struct {
	key       types.NamespacedName
	uid       types.UID
	candidate *Candidate
	change    Change
	policies  []*Policy
	// running: work on the node has started and not ended.
	running bool
	// waiting for a policy.
	waiting bool
	failed  bool
	// worst is the worst action that the node has planned; empty if it has planned nothing.
	worst disruption.ActionType
	// starts of work on the node, whichever update it was for.
	starts []time.Time
	// configured is since when the Machine has the configuration that it has.
	configured time.Time

	// counted are those of the starts that counters have, and once reports that it holds for one look only.
	counted []time.Time
	once    bool
	// asked is the look at which it was found out whether policies let it start, and open whether they did.
	asked int64
	open  bool
}

// record reads an update and its Machine as policies see them now.
func (g *Gate) record(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) (*record, error) {
	r, err := g.lasting(ctx, machine, mu, g.Policies.Select)
	if err != nil {
		return nil, err
	}
	if r.change.Wait, err = g.Waits.Of(ctx, r.candidate, machine, mu, r.policies); err != nil {
		return nil, err
	}
	r.change.Expected, err = g.expected(ctx, r)
	return r, err
}

// lasting reads of an update and its Machine what holds for as long as both, what they belong to, and the policies are the same, and a permission
// is not over.
func (g *Gate) lasting(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate, choose func(*Candidate) ([]*Policy, error)) (*record, error) {
	r := &record{key: client.ObjectKeyFromObject(mu), uid: mu.UID, change: Change{Digest: mu.ChangeID(), Permit: PermitOf(mu, g.Clock.Now()), Class: ClassOf(mu)}, configured: machine.CreationTimestamp.Time}
	var err error
	if r.candidate, err = (Candidates{g.Client}).Machine(ctx, machine); err != nil {
		return nil, err
	}
	if r.policies, err = choose(r.candidate); err != nil {
		return nil, err
	}
	st := mu.Status
	if st.LastSucceededAt != nil {
		r.configured = st.LastSucceededAt.Time
	}
	for _, t := range st.Starts {
		r.starts = append(r.starts, t.Time)
	}
	r.running, r.failed, r.waiting = Runs(mu), HasFailed(mu), Holds(mu)
	if st.Plan != nil {
		r.worst = disruption.ActionType(st.Plan.WorstAction).OrReplace()
	}
	return r, nil
}

// asOfNow returns the record of an update that waits with what passes by itself: how long it is expected to take, and how long it may wait.
func (g *Gate) asOfNow(ctx context.Context, r *record) (*record, error) {
	as := *r
	var err error
	if as.change.Expected, err = g.expected(ctx, r); err != nil || !g.Waits.end(r.policies) {
		return &as, err
	}
	var mu refitv1.MachineUpdate
	var machine clusterv1.Machine
	for _, obj := range []client.Object{&mu, &machine} {
		if err := g.Client.Get(ctx, r.key, obj, client.UnsafeDisableDeepCopy); err != nil {
			return &as, client.IgnoreNotFound(err) // it goes, and its policies are asked as if it had no deadline
		}
	}
	as.change.Wait, err = g.Waits.Of(ctx, r.candidate, &machine, mu.Restored(), r.policies)
	return &as, err
}

// recordOf returns an update as it counts. It is not found if its Cluster is gone.
func (g *Gate) recordOf(ctx context.Context, now time.Time, machine *clusterv1.Machine, mu *refitv1.MachineUpdate, choose func(*Candidate) ([]*Policy, error)) (*record, error) {
	r, err := g.lasting(ctx, machine, mu, choose)
	if err != nil {
		return nil, err
	}
	if s, ok := g.admitted[r.key]; ok {
		if g.known(s, mu) {
			delete(g.admitted, r.key)
		} else {
			r.running, r.waiting, r.once, r.starts = true, false, true, append(r.starts, s.at.Time)
		}
	}
	for i, at := range r.starts {
		r.starts[i] = g.ahead(now, at)
		r.once = r.once || !r.starts[i].Equal(at)
	}
	r.counted = countable(now, r.starts)
	return r, nil
}

// ahead returns when a start was, by this process's clock. One in the future was written before a clock was set back, or by one that is ahead: it
// counts as from when it was seen first, so that nothing waits for as long as the clocks differ. Go's clock does not go back within a process.
func (g *Gate) ahead(now, at time.Time) time.Time {
	if seen, ok := g.future[at.Unix()]; ok {
		return seen
	}
	if !at.After(now) {
		return at
	}
	if g.future == nil {
		g.future = map[int64]time.Time{}
	}
	g.future[at.Unix()] = now
	return now
}

// plainly returns what identifies decisions about the updates that nothing but their policies says something about, and whether this is one of them.
func (r *record) plainly() (together, bool) {
	key := together{expected: r.change.Expected}
	schedules, _ := asked(r.policies, nil, r.change)
	special := len(r.candidate.Overrides) > 0 || r.change.Permit.given() || !r.change.Wait.Since.IsZero() || copy(key.schedules[:], schedules) < len(schedules)
	for _, p := range r.policies {
		special = special || p.Jitter > 0 || len(p.Own) > 0
	}
	return key, !special
}

// before reports whether an update goes before another one.
func (r *record) before(o *record) bool {
	if a, b := r.change.Permit.At, o.change.Permit.At; !a.Equal(b) && !a.IsZero() && !b.IsZero() { // in the order that somebody says
		return a.Before(b)
	}
	if !r.configured.Equal(o.configured) {
		return r.configured.Before(o.configured)
	}
	return r.key.Name < o.key.Name // of one namespace
}

// Runs reports whether work on the node of an update has started that counts against a budget, and not ended. Other specs that are asked for in
// the middle of the work take the admission away, and nothing of what is under way.
func Runs(mu *refitv1.MachineUpdate) bool {
	st := mu.Status
	ended := st.Phase == refitv1.PhaseSucceeded || st.Phase == refitv1.PhaseFailed
	admitted := st.Admission != nil && st.Admission.Reason != refitv1.NotMaterial
	disturbed := st.Slot != nil && (st.ApplyingSince != nil || st.Drain != nil)
	return (admitted || disturbed) && !ended
}

// HasFailed reports whether an update counts as one that has failed.
func HasFailed(mu *refitv1.MachineUpdate) bool {
	return mu.Status.Phase == refitv1.PhaseFailed && mu.Status.ObservedDigest == mu.Spec.Digest && !mu.Abandoned()
}

// Holds reports whether the update waits for a policy.
func Holds(mu *refitv1.MachineUpdate) bool {
	return mu.Status.Phase == refitv1.PhaseWaiting && slices.Contains([]string{refitv1.ReasonWindow, refitv1.ReasonBudget, refitv1.ReasonHealth}, mu.Status.Reason)
}
