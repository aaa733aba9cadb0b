package shard

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

// divisionLabel is on the Leases of shards and replicas, with how many shards the fleet is divided into.
const divisionLabel = "capi-refit.dev/shards"

// releaseTimeout bounds the writes of a replica that ends.
const releaseTimeout = 5 * time.Second

// lockOf returns the Lease of a shard.
func (e *Elector) lockOf(shard int) resourcelock.Interface {
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: shardName(shard, e.Shards.Count)}, Client: e.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity}, Labels: map[string]string{divisionLabel: fmt.Sprint(e.Shards.Count)},
	}
}

// release has others acquire a Lease at once, if it is still this replica's.
func release(lock resourcelock.Interface) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	record, _, err := lock.Get(ctx)
	if err != nil || record.HolderIdentity != lock.Identity() {
		return err
	}
	now := metav1.Now()
	return lock.Update(ctx, resourcelock.LeaderElectionRecord{
		LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
	})
}

// leases are those of shards and replicas, as they were a moment ago.
type leases struct {
	namespace string
	lister    coordinationlisters.LeaseLister
}

// watch has the Leases be known, until the function is called that it returns.
func (e *Elector) watch(ctx context.Context) (*leases, func()) {
	factory := informers.NewSharedInformerFactoryWithOptions(e.Watcher, 0, informers.WithNamespace(e.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = divisionLabel }))
	l := &leases{e.Namespace, factory.Coordination().V1().Leases().Lister()}
	watching, stop := context.WithCancel(ctx)
	factory.StartWithContext(watching)
	factory.WaitForCacheSyncWithContext(ctx)
	return l, func() {
		stop()
		factory.Shutdown()
	}
}

func (l *leases) all() ([]*coordinationv1.Lease, error) {
	all, err := l.lister.Leases(l.namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Leases: %w", err)
	}
	return all, nil
}

// Elections returns, of all Leases, those by which leaders are elected now: for each namespace that of the whole fleet, and where replicas divide it
// those of the shards that there are. One that is not there yet is returned with no holder. Those of shards of a former number stay, and
// are left out.
func Elections(all []coordinationv1.Lease) []coordinationv1.Lease {
	known := map[types.NamespacedName]*coordinationv1.Lease{}
	for i := range all {
		known[types.NamespacedName{Namespace: all[i].Namespace, Name: all[i].Name}] = &all[i]
	}
	var out []coordinationv1.Lease
	for i := range all {
		if all[i].Name != LeaderLease {
			continue
		}
		out = append(out, all[i])
		for n, count := 0, shardsOf(&all[i]); n < count; n++ {
			name := types.NamespacedName{Namespace: all[i].Namespace, Name: shardName(n, count)}
			lease := known[name]
			if lease == nil {
				lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
			}
			out = append(out, *lease)
		}
	}
	return out
}

// most bounds how many shards are looked for: whoever may write a Lease may write any number there.
const most = 1000

// shardsOf returns into how many shards a fleet is divided by who holds its Lease: 0 if it is one leader, or nobody.
func shardsOf(lease *coordinationv1.Lease) int {
	count := 0
	if _, err := fmt.Sscanf(ptr.Deref(lease.Spec.HolderIdentity, ""), divided, &count); err != nil || count > most {
		return 0
	}
	return count
}
