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
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/schedule"
)

func (g *Gate) cached() index.Memory { return index.Memory{Client: g.Client, Informers: g.Informers} }

// Gate lets updates start on nodes. It is for the leader: what it has let start is counted in one place.
type Gate struct {
	Policies *Policies
	// Client reads from a cache.
	Client client.Reader
	// Informers are those of that cache. Nil: it is listed.
	Informers index.Informers
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
	kept      map[string]*books   // by namespace
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

// recentlyFor is how old books may be for a question whose answer admits nothing: many ask at once.
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
	return d, g.applyBudgets(ctx, &d, self, b)
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
func (g *Gate) decideByBudgets(ctx context.Context, self *record) (Decision, error) {
	d := g.decideNow(self)
	if !d.counted() {
		return d, nil
	}
	b, err := g.books(ctx, self.key.Namespace)
	if err != nil {
		return d, err
	}
	return d, g.applyBudgets(ctx, &d, self, b)
}

// MayBeWritten reports whether a write that has ended with an error may have been made all the same. One that was not answered may.
func MayBeWritten(err error) bool {
	return !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !errors.Is(err, ErrNotTried)
}

// ErrNotTried says that a write was not tried.
var ErrNotTried = errors.New("nothing was written")

// tell tells about the overrides that have let an update start.
func (g *Gate) tell(ctx context.Context, self *record, d *Decision) {
	if len(d.By) > 0 {
		ctrl.LoggerFrom(ctx).Info("Change management is overridden", "machine", self.key, "overrides", d.By, "passes", d.Passed)
		g.Metrics.overridden(self.candidate, d)
	}
}

func (g *Gate) decide(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) (Decision, *record, error) {
	self, err := g.record(ctx, machine, mu)
	if err != nil {
		return Decision{}, nil, err
	}
	d := g.decideNow(self)
	d.started = func(ctx context.Context) { g.tell(ctx, self, &d) }
	return d, self, nil
}

// counted reports whether the decision is subject to a budget: one that an override made is not, but to those of firm policies, and a probe is to one
// of its own.
func (d *Decision) counted() bool {
	return d.Open && (d.Reason != schedule.Overridden || len(d.firm) > 0) && (d.Probe || limited(d.budgeted()))
}

// limited reports whether one of the policies has a budget.
func limited(policies []*Policy) bool { return slices.ContainsFunc(policies, (*Policy).limited) }

// applyBudgets closes a decision that a budget does not allow.
func (g *Gate) applyBudgets(ctx context.Context, d *Decision, self *record, b *books) error {
	now := g.Clock.Now()
	if d.Probe && b.probed(d, self) {
		d.waitForProbe(now)
		return nil
	}
	why, err := b.budgets(ctx, now, d, self)
	if why != nil {
		d.Open, d.Reason, d.Message = false, schedule.BudgetExhausted, why.message
		d.limits = append(d.limits, why.limit...)
		d.PermissiveRemainingSeconds, d.Frees = 0, why.eta == 0
		d.NextChangeETASeconds = max(1, int64((why.eta+time.Second-1)/time.Second))
	}
	return err
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
	b, err := g.books(ctx, namespace)
	if err != nil {
		return nil, err
	}
	now := g.Clock.Now()
	var out []types.NamespacedName
	for _, r := range b.oldest(examined) {
		r, err := g.asOfNow(ctx, r)
		if err != nil {
			return nil, err
		}
		d := g.decideNow(r)
		allowed, err := b.allowed(ctx, now, &d, r)
		if err != nil {
			return nil, err
		}
		if allowed {
			out = append(out, r.key)
		}
		if len(out) == most {
			break
		}
	}
	return out, nil
}

// allowed reports whether a decision is open, and no budget stands in its way.
func (b *books) allowed(ctx context.Context, now time.Time, d *Decision, r *record) (bool, error) {
	if !d.counted() {
		return d.Open, nil
	}
	why, err := b.budgets(ctx, now, d, r)
	return err == nil && why == nil && (!d.Probe || !b.probed(d, r)), err
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
