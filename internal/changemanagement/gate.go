package changemanagement

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/schedule"
)

// Gate lets updates start on nodes. It is for the leader: what it has let start is counted in one place.
type Gate struct {
	Policies *Policies
	// Client reads from a cache.
	Client client.Reader
	// Live reads from the API server.
	Live    client.Reader
	Clock   clock.PassiveClock
	Metrics *Metrics
	// Waits find out how long changes may wait. Nil: there are no deadlines.
	Waits *Waits
	// Health answers for health gates. Nil: nobody does.
	Health Health

	departed departures
	soaks    soakFailures

	mu        sync.Mutex
	admitted  map[types.NamespacedName]start // that the cache may not know yet
	primed    map[string]bool                // namespaces whose updates were read from the API server
	durations measured
	recent    map[string]recently // by namespace
	future    map[int64]time.Time // when starts that are in the future were seen first, by their seconds of Unix
}

// start is an admission that was written to a MachineUpdate, or may have been.
type start struct {
	update types.UID
	at     metav1.Time
	// unsure is when a write was not answered; zero if it was. By default an API server gives up a request after a minute.
	unsure time.Time
}

// settled is how long after a write that was not answered the API server may still make it.
const settled = 2 * time.Minute

// recently are the updates of a namespace as they were read last.
type recently struct {
	books
	at time.Time
}

// recentlyFor is how old records may be for a question whose answer admits nothing: many ask at once.
const recentlyFor = time.Second

// Ask reports whether the update of the Machine may start now. It admits nothing.
func (g *Gate) Ask(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) (Decision, error) {
	d, self, err := g.decide(ctx, machine, mu)
	if err != nil || !d.counted() {
		return d, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	b, err := g.glance(ctx, self.key.Namespace)
	if err != nil {
		return d, err
	}
	g.applyBudgets(&d, self, b)
	return d, nil
}

// Admit asks, and if the update may start has write record that it does. Until write has returned no other update that counts
// against a budget is admitted.
func (g *Gate) Admit(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate, write func(refitv1.Admission) error) (Decision, error) {
	d, self, err := g.decide(ctx, machine, mu)
	if err != nil {
		return d, err
	}
	counts := limited(self.policies) || d.Probe
	if counts {
		g.mu.Lock()
		defer g.mu.Unlock()
		if d, err = g.decideByBudgets(ctx, self); err != nil {
			return d, err
		}
	}
	if !d.Open {
		return d, nil
	}
	a := d.admission(g.Clock.Now(), self.candidate.Role)
	err = write(a)
	if counts && MayBeWritten(err) {
		s := start{update: mu.UID, at: a.AdmittedAt}
		if err != nil {
			s.unsure = g.Clock.Now()
		}
		g.remember(self.key, s)
	}
	if err == nil {
		g.tell(ctx, self, &d)
	}
	return d, err
}

// decideByBudgets decides as of now, when nobody else is admitted: others may have been for a while, so that the window can have ended.
func (g *Gate) decideByBudgets(ctx context.Context, self record) (Decision, error) {
	d := g.decideNow(self)
	if !d.counted() {
		return d, nil
	}
	b, err := g.books(ctx, self.key.Namespace)
	if err != nil {
		return d, err
	}
	g.applyBudgets(&d, self, b)
	return d, nil
}

// MayBeWritten reports whether a write that has ended with an error may have been made all the same. One that was not answered may.
func MayBeWritten(err error) bool {
	return !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !errors.Is(err, ErrNotTried)
}

// ErrNotTried says that a write was not tried.
var ErrNotTried = errors.New("nothing was written")

// tell tells about the overrides that have let an update start.
func (g *Gate) tell(ctx context.Context, self record, d *Decision) {
	if len(d.By) > 0 {
		ctrl.LoggerFrom(ctx).Info("Change management is overridden", "machine", self.key, "overrides", d.By, "passes", d.Passed)
		g.Metrics.overridden(self.candidate, d)
	}
}

func (g *Gate) decide(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) (Decision, record, error) {
	self, err := g.record(ctx, machine, mu)
	if err != nil {
		return Decision{}, self, err
	}
	if self.change.Expected, err = g.expected(ctx, self, mu); err != nil {
		return Decision{}, self, err
	}
	d := g.decideNow(self)
	d.started = func(ctx context.Context) { g.tell(ctx, self, &d) }
	return d, self, nil
}

// record reads an update and its Machine as policies see them.
func (g *Gate) record(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) (record, error) {
	r := record{key: client.ObjectKeyFromObject(mu), uid: mu.UID, change: Change{Digest: mu.ChangeID(), Permit: PermitOf(mu, g.Clock.Now()), Class: ClassOf(mu)}, configured: machine.CreationTimestamp.Time}
	var err error
	if r.candidate, err = (Candidates{g.Client}).Machine(ctx, machine); err != nil {
		return r, err
	}
	if r.policies, err = g.Policies.Select(r.candidate); err != nil {
		return r, err
	}
	if r.change.Wait, err = g.Waits.Of(ctx, r.candidate, machine, mu, r.policies); err != nil {
		return r, err
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

// counted reports whether the decision is subject to a budget: one that an override made is not, but to those of firm policies, and a probe is to one
// of its own.
func (d *Decision) counted() bool {
	return d.Open && (d.Reason != schedule.Overridden || len(d.firm) > 0) && (d.Probe || limited(d.budgeted()))
}

// limited reports whether one of the policies has a budget.
func limited(policies []*Policy) bool { return slices.ContainsFunc(policies, (*Policy).limited) }

// applyBudgets closes a decision that a budget does not allow.
func (g *Gate) applyBudgets(d *Decision, self record, b books) {
	now := g.Clock.Now()
	if d.Probe && self.probed(*d, b.records) {
		d.waitForProbe(now)
		return
	}
	if why := budgets(now, *d, self, b); why != nil {
		d.Open, d.Reason, d.Message = false, schedule.BudgetExhausted, why.message
		d.limits = append(d.limits, why.limit...)
		d.PermissiveRemainingSeconds, d.Frees = 0, why.eta == 0
		d.NextChangeETASeconds = max(1, int64((why.eta+time.Second-1)/time.Second))
	}
}

// glance returns what counts in a namespace as it was a moment ago.
func (g *Gate) glance(ctx context.Context, namespace string) (books, error) {
	now := g.Clock.Now()
	last := g.recent[namespace]
	if age := now.Sub(last.at); age > 0 && age < recentlyFor {
		return last.books, nil
	}
	b, err := g.books(ctx, namespace)
	if err != nil {
		return books{}, err
	}
	if g.recent == nil {
		g.recent = map[string]recently{}
	}
	g.recent[namespace] = recently{b, now}
	return b, nil
}

// examined bounds how many updates are looked at to find those that a budget lets start.
const examined = 100

// Next returns updates of a namespace that a policy's budget has held back and that may start now, those first whose turn it is, and at most so
// many. It is asked when a budget may have been freed, so that whoever looks then does not go by what was before.
func (g *Gate) Next(ctx context.Context, namespace string, most int) ([]types.NamespacedName, error) {
	all, err := g.Policies.In(namespace)
	if err != nil || !limited(all) {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.recent, namespace)
	b, err := g.glance(ctx, namespace)
	if err != nil {
		return nil, err
	}
	now := g.Clock.Now()
	waiting := slices.DeleteFunc(slices.Clone(b.records), func(r record) bool { return !r.waiting || !limited(r.policies) })
	slices.SortFunc(waiting, func(a, b record) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	var out []types.NamespacedName
	for _, r := range waiting[:min(len(waiting), examined)] {
		if d := g.decideNow(r); d.Open && d.allowed(now, r, b) {
			out = append(out, r.key)
		}
		if len(out) == most {
			break
		}
	}
	return out, nil
}

// allowed reports whether no budget stands in the way of a decision that is open.
func (d *Decision) allowed(now time.Time, r record, b books) bool {
	if !d.counted() {
		return true
	}
	return budgets(now, *d, r, b) == nil && (!d.Probe || !r.probed(*d, b.records))
}

// admission is what is recorded of a decision that lets an update start.
func (d *Decision) admission(now time.Time, role refitv1.Role) refitv1.Admission {
	a := refitv1.Admission{
		AdmittedAt: metav1.NewTime(now.Truncate(time.Second)), Reason: string(d.Reason), Message: d.Message,
		Role: role, Policies: names(d.Policies),
	}
	if d.Window != nil {
		a.Window = WindowOf(*d.Window)
	}
	return a
}

// WindowOf returns a window as the API has it.
func WindowOf(w schedule.Window) *refitv1.Window {
	out := &refitv1.Window{}
	if !w.Start.IsZero() {
		out.Start = &metav1.Time{Time: w.Start}
	}
	if !w.End.IsZero() {
		out.End = &metav1.Time{Time: w.End}
	}
	return out
}
