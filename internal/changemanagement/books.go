package changemanagement

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// books are what counts against the budgets of a namespace.
type books struct {
	records []record
	ledgers map[types.NamespacedName]ledger // by policy
}

// books returns what counts in a namespace: its updates, and what the ledgers know of those that are gone.
func (g *Gate) books(ctx context.Context, namespace string) (books, error) {
	records, err := g.records(ctx, namespace)
	if err != nil {
		return books{}, err
	}
	policies, err := g.Policies.In(namespace)
	if err != nil {
		return books{}, err
	}
	b, now := books{records, map[types.NamespacedName]ledger{}}, g.Clock.Now()
	for _, p := range policies {
		if !p.limited() || p.Namespaces != nil { // those of clusters have only what MachineUpdates say themselves
			continue
		}
		var policy refitv1.ChangeManagementPolicy
		if err := g.Client.Get(ctx, p.NamespacedName, &policy); client.IgnoreNotFound(err) != nil {
			return books{}, fmt.Errorf("read ChangeManagementPolicy %s: %w", p.NamespacedName, err)
		}
		policy.Namespace, policy.Name = p.Namespace, p.Name
		l := ledgerOf(now, p.since(now), &policy, g.departed.of(&policy))
		l.soaked(now, &policy, g.soaks.of(policy.UID))
		for _, starts := range l.starts {
			for i := range starts {
				starts[i].At.Time = g.ahead(now, starts[i].At.Time)
			}
		}
		b.ledgers[p.NamespacedName] = l
	}
	return b, nil
}

// records returns the updates of a namespace, with what was admitted and the cache does not know yet.
func (g *Gate) records(ctx context.Context, namespace string) ([]record, error) {
	if err := g.prime(ctx, namespace); err != nil {
		return nil, err
	}
	var list refitv1.MachineUpdateList
	if err := g.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list MachineUpdates: %w", err)
	}
	now := g.Clock.Now()
	var out []record
	for i := range list.Items {
		r, err := g.recordOf(ctx, now, list.Items[i].Restored())
		switch {
		case client.IgnoreNotFound(err) != nil:
			return nil, err
		case err == nil:
			out = append(out, r)
		}
	}
	maps.DeleteFunc(g.future, func(at int64, _ time.Time) bool { return now.Sub(time.Unix(at, 0)) > longestPeriod })
	return out, nil
}

// recordOf returns an update as it counts. It is not found if its Machine, with which it goes, is gone, or its Cluster, which must not stop others.
func (g *Gate) recordOf(ctx context.Context, now time.Time, mu *refitv1.MachineUpdate) (record, error) {
	key := client.ObjectKeyFromObject(mu)
	var machine clusterv1.Machine
	if err := g.Client.Get(ctx, key, &machine); err != nil {
		return record{}, fmt.Errorf("read Machine %s: %w", key, err)
	}
	r, err := g.record(ctx, &machine, mu)
	if err != nil {
		return r, err
	}
	if s, ok := g.admitted[key]; ok {
		if g.known(s, mu) {
			delete(g.admitted, key)
		} else {
			r.running, r.waiting, r.starts = true, false, append(r.starts, s.at.Time)
		}
	}
	for i, at := range r.starts {
		r.starts[i] = g.ahead(now, at)
	}
	if r.waiting { // whether it could start takes how long it is expected to take
		r.unhealthy = g.unhealthy(r.policies, r.candidate.Cluster) != nil
		r.change.Expected, err = g.expected(ctx, r, mu)
	}
	return r, err
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
