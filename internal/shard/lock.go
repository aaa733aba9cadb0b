package shard

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

// divisionLabel is on all Leases by which a fleet is divided, with how many shards it is divided into.
const divisionLabel = "capi-refit.dev/shards"

// Lock is the Lease of one part of a fleet. Replicas that divide it otherwise, as in the middle of a change of --shards, would work on the same
// namespaces under other Leases: as long as one of them holds any, nothing is acquired.
type Lock struct {
	resourcelock.Interface
	leases   coordinationclient.LeaseInterface
	division string
	held     bool
}

// NewLock returns the Lock of the shard of a number among so many. With one shard it is the Lease that has always been elected by.
func NewLock(leases coordinationclient.LeasesGetter, namespace, identity string, shard, count int) *Lock {
	name, division := shardName(shard, count), fmt.Sprint(count)
	if count == 1 {
		name = "controller-leader-election-refit"
	}
	return &Lock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity}, Labels: map[string]string{divisionLabel: division},
		},
		leases: leases.Leases(namespace), division: division,
	}
}

// Create implements resourcelock.Interface.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

// write looks for those who divide the fleet otherwise before the Lease is acquired, and after: of two who acquire at once one at least sees
// the other.
func (l *Lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	acquires := record.HolderIdentity != "" && !l.held
	if acquires {
		if err := l.alone(ctx); err != nil {
			return err
		}
	}
	if err := write(ctx, record); err != nil {
		return err
	}
	if acquires {
		if err := l.alone(ctx); err != nil {
			return l.takeBack(err)
		}
	}
	l.held = record.HolderIdentity != ""
	return nil
}

// takeBack releases the Lease that was acquired a moment ago, and returns why.
func (l *Lock) takeBack(why error) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if err := l.Interface.Update(ctx, released()); err != nil {
		return fmt.Errorf("%w; and release the Lease, which ends by itself: %w", why, err)
	}
	return why
}

// releaseTimeout bounds the write that releases a Lease.
const releaseTimeout = 5 * time.Second

// released is what a Lease says that anybody may acquire at once.
func released() resourcelock.LeaderElectionRecord {
	now := metav1.Now()
	return resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now}
}

// Release has others acquire the Lease at once, if it is still this replica's.
func (l *Lock) Release(ctx context.Context) error {
	record, _, err := l.Get(ctx)
	if err != nil || record.HolderIdentity != l.Identity() {
		return err
	}
	return l.Update(ctx, released())
}

// alone returns an error while somebody holds a part of the fleet as it is divided otherwise.
func (l *Lock) alone(ctx context.Context) error {
	list, err := l.leases.List(ctx, metav1.ListOptions{LabelSelector: divisionLabel})
	if err != nil {
		return fmt.Errorf("find who divides the fleet otherwise: %w", err)
	}
	for i := range list.Items {
		lease := &list.Items[i]
		if division := lease.Labels[divisionLabel]; division != l.division && !isMember(lease) && current(lease, time.Now()) {
			return fmt.Errorf("%s holds Lease %s, of a fleet with --shards=%s, and this replica has --shards=%s: it waits until that one ends",
				*lease.Spec.HolderIdentity, lease.Name, division, l.division)
		}
	}
	return nil
}

// current reports whether a Lease is held, by the clock of who asks.
func current(lease *coordinationv1.Lease, now time.Time) bool {
	s := lease.Spec
	if ptr.Deref(s.HolderIdentity, "") == "" || s.RenewTime == nil {
		return false
	}
	return now.Before(s.RenewTime.Add(time.Duration(ptr.Deref(s.LeaseDurationSeconds, 0)) * time.Second))
}
