package changemanagement

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/revision"
)

// books are what counts against the budgets of a namespace. They are kept from one look to the next: an update is read again when something has changed
// on which its record depends, and each policy has counters of what its updates do.
type books struct {
	gate      *Gate
	namespace string
	policies  []*Policy // those for the namespace
	at        time.Time // of the last look
	look      int64     // counts the looks

	entries  map[string]*entry // by the names of updates
	parents  map[owner]*parent // of their Machines
	counters map[types.NamespacedName]*counter

	// What was found out since the last look: the ledgers of policies, and whether changes may start by policies alone.
	ledgers map[types.NamespacedName]ledger
	plain   map[together]bool
}

// entry is an update in books, and of what its record was made.
type entry struct {
	record          *record // nil: it does not count, since its Cluster is gone
	update, machine revision.Revision
	parents         []*parent
	look            int64 // in which the record was made
	again           bool  // the record holds for that look only
	// until is when the permission of the update is over; zero if it has none, or one for always.
	until time.Time

	// What the cache has, during a look.
	updateNow  *refitv1.MachineUpdate
	machineNow *clusterv1.Machine
}

// books returns what counts in a namespace now. Versions of objects tell what has changed since the last look, and no event: none can be missed.
func (g *Gate) books(ctx context.Context, namespace string) (*books, error) {
	if err := g.prime(ctx, namespace); err != nil {
		return nil, err
	}
	policies, err := g.Policies.In(namespace)
	if err != nil {
		return nil, err
	}
	now, b := g.Clock.Now(), g.kept[namespace]
	if b == nil || now.Before(b.at) || !slices.Equal(b.policies, policies) {
		b = &books{gate: g, namespace: namespace, policies: policies, entries: map[string]*entry{}, parents: map[owner]*parent{}, counters: map[types.NamespacedName]*counter{}}
	}
	delete(g.kept, namespace) // what an error leaves half done is not kept
	if err := b.lookAgain(ctx, now); err != nil {
		return nil, err
	}
	maps.DeleteFunc(g.future, func(at int64, _ time.Time) bool { return now.Sub(time.Unix(at, 0)) > longestPeriod })
	if g.kept == nil {
		g.kept = map[string]*books{}
	}
	g.kept[namespace] = b
	return b, nil
}

// glance returns what counted in a namespace a moment ago.
func (g *Gate) glance(ctx context.Context, namespace string) (*books, error) {
	if b := g.kept[namespace]; b != nil {
		if age := g.Clock.Now().Sub(b.at); age > 0 && age < recentlyFor {
			return b, nil
		}
	}
	return g.books(ctx, namespace)
}

// lookAgain brings the books up to now.
func (b *books) lookAgain(ctx context.Context, now time.Time) error {
	b.at, b.look = now.Round(0), b.look+1 // a clock of the wall may go back
	b.ledgers, b.plain = map[types.NamespacedName]ledger{}, map[together]bool{}
	// Versions are read before what is read by them: what changes meanwhile is read once more at the next look.
	if err := b.lookAtParents(ctx); err != nil {
		return err
	}
	if err := b.list(ctx); err != nil {
		return err
	}
	var changed []*entry
	for name, e := range b.entries {
		switch {
		case e.updateNow == nil || e.machineNow == nil: // an update goes with its Machine
			b.leave(e)
			delete(b.entries, name)
		case e.current(now):
			e.updateNow, e.machineNow = nil, nil
		default:
			b.leave(e)
			changed = append(changed, e)
		}
	}
	for _, e := range changed {
		if err := b.enter(ctx, now, e); err != nil {
			return err
		}
	}
	return nil
}

// list notes what the cache has, and of which updates it does not know all.
func (b *books) list(ctx context.Context) error {
	cached, of := b.gate.cached(), index.InNamespace(b.namespace)
	if err := index.Each(ctx, cached, of, &refitv1.MachineUpdateList{}, func(mu *refitv1.MachineUpdate) error {
		e := b.entries[mu.Name]
		if e == nil {
			e = &entry{}
			b.entries[mu.Name] = e
		}
		e.updateNow = mu
		return nil
	}); err != nil {
		return fmt.Errorf("list MachineUpdates: %w", err)
	}
	if err := index.Each(ctx, cached, of, &clusterv1.MachineList{}, func(m *clusterv1.Machine) error {
		if e := b.entries[m.Name]; e != nil {
			e.machineNow = m
		}
		return nil
	}); err != nil {
		return fmt.Errorf("list Machines: %w", err)
	}
	for key := range b.gate.admitted {
		if e := b.entries[key.Name]; e != nil && key.Namespace == b.namespace {
			e.again = true
		}
	}
	return nil
}

// current reports whether the record of an update is as it would be made now.
func (e *entry) current(now time.Time) bool {
	return !e.again && e.update.Is(e.updateNow) && e.machine.Is(e.machineNow) && (e.until.IsZero() || now.Before(e.until)) &&
		!slices.ContainsFunc(e.parents, func(p *parent) bool { return p.changed > e.look })
}

// leave takes what an update does out of the counters.
func (b *books) leave(e *entry) {
	if e.record != nil {
		for _, p := range e.record.policies {
			b.counters[p.NamespacedName].remove(e.record)
		}
	}
	for _, p := range e.parents {
		p.children--
	}
	e.record, e.parents = nil, nil
}

// enter makes the record of an update, and counts what it does. One whose Cluster is gone does not count, and must not stop others.
func (b *books) enter(ctx context.Context, now time.Time, e *entry) error {
	mu, m := e.updateNow.Restored(), e.machineNow
	e.updateNow, e.machineNow = nil, nil // the cache's lists are not kept
	e.update, e.machine, e.look, e.until = revision.Of(mu), revision.Of(m), b.look, time.Time{}
	if err := b.adopt(ctx, e, m); err != nil {
		return err
	}
	r, err := b.gate.recordOf(ctx, now, m, mu, b.choose)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if e.again = err != nil || r.once; err != nil {
		return nil
	}
	if r.change.Permit.given() {
		_, e.until = permitOf(mu)
	}
	e.record = r
	for _, p := range r.policies {
		c := b.counters[p.NamespacedName]
		if c == nil {
			c = &counter{waiting: map[*record]bool{}}
			b.counters[p.NamespacedName] = c
		}
		c.add(e.record)
	}
	return nil
}

// choose returns the policies that select a Machine, of those that the books were made by: what is another one now makes them anew at the next look.
func (b *books) choose(s *Candidate) ([]*Policy, error) {
	return slices.DeleteFunc(slices.Clone(b.policies), func(p *Policy) bool { return !p.Selects(s) }), nil
}

// of returns the record of an update by its name, or nil.
func (b *books) of(name string) *record {
	if e := b.entries[name]; e != nil {
		return e.record
	}
	return nil
}

// entered returns the record of the update of which a ledger has an entry; nil if it is gone.
func (b *books) entered(e refitv1.LedgerEntry) *record {
	if r := b.of(e.Machine); r != nil && string(r.uid) == e.Update {
		return r
	}
	return nil
}

// ledger returns the ledger of a policy as of the last look. Those of the platform have none.
func (b *books) ledger(ctx context.Context, p *Policy) (ledger, error) {
	if known, ok := b.ledgers[p.NamespacedName]; ok || p.Namespaces != nil {
		return known, nil
	}
	g := b.gate
	var policy refitv1.ChangeManagementPolicy
	if err := g.Client.Get(ctx, p.NamespacedName, &policy, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return ledger{}, fmt.Errorf("read ChangeManagementPolicy %s: %w", p.NamespacedName, err)
	}
	policy.Namespace, policy.Name = p.Namespace, p.Name
	l := ledgerOf(b.at, p.since(b.at), &policy, g.departed.of(&policy))
	l.soaked(b.at, &policy, g.soaks.of(policy.UID))
	for _, starts := range l.starts {
		for i := range starts {
			starts[i].At.Time = g.ahead(b.at, starts[i].At.Time)
		}
	}
	b.ledgers[p.NamespacedName] = l
	return l, nil
}

// oldest returns the updates that wait and are subject to a budget, those first whose turn it is, and at most so many.
func (b *books) oldest(most int) []*record {
	var first []*record
	for _, e := range b.entries {
		r := e.record
		if r == nil || !r.waiting || len(first) == most && !r.before(first[most-1]) || !limited(r.policies) {
			continue
		}
		i := sort.Search(len(first), func(i int) bool { return r.before(first[i]) })
		if first = slices.Insert(first, i, r); len(first) > most {
			first = first[:most]
		}
	}
	return first
}

// couldStart reports whether an update that waits may start, budgets aside.
func (b *books) couldStart(ctx context.Context, now time.Time, r *record) (bool, error) {
	if r.asked == b.look {
		return r.open, nil
	}
	as, err := b.gate.asOfNow(ctx, r)
	if err != nil {
		return false, err
	}
	r.asked, r.open = b.look, b.open(now, as) && len(b.gate.unhealthy(r.policies, r.candidate.Cluster)) == 0
	return r.open, nil
}

// open reports whether policies let an update start, or knows what they say of another one.
func (b *books) open(now time.Time, r *record) bool {
	key, plain := r.plainly()
	if !plain {
		return Decide(now, r.candidate, r.policies, r.change).Open
	}
	open, known := b.plain[key]
	if !known {
		open = Decide(now, r.candidate, r.policies, r.change).Open
		b.plain[key] = open
	}
	return open
}
