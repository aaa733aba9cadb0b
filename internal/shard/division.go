package shard

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// LeaderLease is the Lease by which a leader is elected where the fleet is not divided.
const LeaderLease = "controller-leader-election-refit"

// divided is who holds that Lease where the fleet is divided: all replicas that divide it into so many shards.
const divided = "replicas with --shards=%d"

// division is the lock of a way to divide the fleet. It is the Lease that a leader has where the fleet is not divided, and all replicas that divide it
// alike have it together, under one name, and renew it: so a leader, of whatever version, and replicas with another number of shards wait
// until the last of them has ended.
type division struct {
	*resourcelock.LeaseLock
	seen resourcelock.LeaderElectionRecord
}

func newDivision(leases coordinationclient.LeasesGetter, namespace string, count int) *division {
	return &division{LeaseLock: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: LeaderLease}, Client: leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprintf(divided, count)},
	}}
}

// Get implements resourcelock.Interface.
func (d *division) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := d.LeaseLock.Get(ctx)
	if err == nil {
		d.seen = *record
	}
	return record, raw, err
}

// Update implements resourcelock.Interface. Other replicas write the Lease, too, so it is read before: what was renewed under the same name since may
// be overwritten, and nothing else. What another replica has renewed at the same time is renewed.
func (d *division) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	now, _, err := d.LeaseLock.Get(ctx)
	if err != nil {
		return err
	}
	if !d.isOurs(now) && *now != d.seen {
		return fmt.Errorf("%q has acquired Lease %s meanwhile", now.HolderIdentity, d.Describe())
	}
	err = d.LeaseLock.Update(ctx, record)
	if !apierrors.IsConflict(err) {
		return err
	}
	if again, _, failed := d.LeaseLock.Get(ctx); failed != nil || !d.isOurs(again) || again.LeaderTransitions != record.LeaderTransitions {
		return err
	}
	return nil
}

func (d *division) isOurs(record *resourcelock.LeaderElectionRecord) bool {
	return record.HolderIdentity == d.Identity()
}
