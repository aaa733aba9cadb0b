package shard

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
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

// IsElection reports whether a Lease is that of a leader: of the whole fleet, or of a shard.
func IsElection(lease *coordinationv1.Lease) bool {
	_, divided := lease.Labels[divisionLabel]
	return lease.Name == LeaderLease || divided && !isMember(lease)
}
