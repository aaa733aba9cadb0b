package shard

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// memberPrefix begins the names of the Leases by which replicas tell that they are there.
const memberPrefix = "refit-replica-"

// forgottenAfter is how long after its end the Lease of a replica that did not delete it is deleted by others.
const forgottenAfter = time.Hour

func isMember(lease *coordinationv1.Lease) bool { return strings.HasPrefix(lease.Name, memberPrefix) }

// memberName is the name of the Lease by which a replica tells that it is there.
func memberName(identity string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(identity))
	return fmt.Sprintf("%s%016x", memberPrefix, h.Sum64())
}

// attend has this replica be there for others, until the function is called that it returns as the second. The first one reports whether it is.
func (e *Elector) attend(ctx context.Context) (attends func() bool, leave func()) {
	var told atomic.Bool
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var forgot time.Time
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			err := e.tell(ctx)
			if time.Since(forgot) > forgottenAfter {
				forgot, err = time.Now(), errors.Join(err, e.forget(ctx))
			}
			if err != nil && ctx.Err() == nil {
				ctrl.LoggerFrom(ctx).Error(err, "Could not tell other replicas that this one is there")
			}
			told.Store(told.Load() || err == nil)
		}, e.Duration/3)
	}()
	return told.Load, sync.OnceFunc(func() {
		cancel()
		<-ended
		if err := e.depart(); err != nil {
			ctrl.Log.WithName("shards").Error(err, "Could not tell other replicas that this one ends")
		}
	})
}

// tell tells that this replica is there.
func (e *Elector) tell(ctx context.Context) error {
	leases := e.Client.CoordinationV1().Leases(e.Namespace)
	now := metav1.NowMicro()
	spec := coordinationv1.LeaseSpec{HolderIdentity: &e.Identity, RenewTime: &now, LeaseDurationSeconds: ptr.To(int32(e.Duration.Seconds()))}
	lease, err := leases.Get(ctx, memberName(e.Identity), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{Spec: spec}
		lease.Namespace, lease.Name = e.Namespace, memberName(e.Identity)
		lease.Labels = map[string]string{divisionLabel: fmt.Sprint(e.Shards.Count)}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec = spec
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// depart tells that this replica is about to be gone.
func (e *Elector) depart() error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	return client.IgnoreNotFound(e.Client.CoordinationV1().Leases(e.Namespace).Delete(ctx, memberName(e.Identity), metav1.DeleteOptions{}))
}

// sight is what a Lease said, and since when, by this replica's clock: those of others may be wrong.
type sight struct {
	holder string
	renew  metav1.MicroTime
	at     time.Time
	// expired tells that it was seen so for as long as it was good for.
	expired bool
}

// live returns who holds a Lease, "" if nobody does: it was released, or not renewed for its duration.
func (e *Elector) live(lease *coordinationv1.Lease) string {
	holder, renew := ptr.Deref(lease.Spec.HolderIdentity, ""), ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{})
	e.sights.Lock()
	defer e.sights.Unlock()
	if e.seen == nil {
		e.seen = map[string]sight{}
	}
	s, ok := e.seen[lease.Name]
	if !ok || s.holder != holder || !s.renew.Equal(&renew) {
		s = sight{holder: holder, renew: renew, at: time.Now()}
	}
	s.expired = time.Since(s.at) > time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second
	e.seen[lease.Name] = s
	if s.expired {
		return ""
	}
	return holder
}

// expired reports whether a Lease, as it is now, was not renewed for its duration when it was seen.
func (e *Elector) expired(name string, now *resourcelock.LeaderElectionRecord) bool {
	e.sights.Lock()
	defer e.sights.Unlock()
	s, ok := e.seen[name]
	return ok && s.expired && s.holder == now.HolderIdentity && s.renew.Time.Equal(now.RenewTime.Time)
}

// survey returns who holds each shard, and the replicas that are there.
func (e *Elector) survey(leases []*coordinationv1.Lease) (holders, members []string) {
	holders = make([]string, e.Shards.Count)
	found := map[string]bool{e.Identity: true}
	for _, lease := range leases {
		if lease.Labels[divisionLabel] != fmt.Sprint(e.Shards.Count) {
			continue
		}
		holder := e.live(lease)
		if isMember(lease) {
			if holder != "" {
				found[holder] = true
			}
			continue
		}
		for shard := range holders {
			if lease.Name == shardName(shard, e.Shards.Count) {
				holders[shard] = holder
			}
		}
	}
	return holders, slices.Sorted(maps.Keys(found))
}

// forget deletes the Leases of replicas that are long gone.
func (e *Elector) forget(ctx context.Context) error {
	list, err := e.Client.CoordinationV1().Leases(e.Namespace).List(ctx, metav1.ListOptions{LabelSelector: divisionLabel})
	if err != nil {
		return err
	}
	for i := range list.Items {
		lease := &list.Items[i]
		if isMember(lease) && lease.Spec.RenewTime != nil && time.Since(lease.Spec.RenewTime.Time) > forgottenAfter {
			o := *metav1.NewPreconditionDeleteOptions(string(lease.UID))
			o.Preconditions.ResourceVersion = &lease.ResourceVersion // it is not told again meanwhile
			if err := e.Client.CoordinationV1().Leases(e.Namespace).Delete(ctx, lease.Name, o); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	return nil
}
