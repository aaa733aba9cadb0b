package shard

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

const system = "refit-system"

// leases returns a fake API server for Leases, which refuses to write what has changed, as the real one does.
func leases() *fake.Clientset {
	c := fake.NewClientset()
	var mu sync.Mutex
	n := 0
	resource := coordinationv1.SchemeGroupVersion.WithResource("leases")
	c.PrependReactor("*", "leases", func(action kubetesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		switch action.GetVerb() {
		case "update":
			lease := action.(kubetesting.UpdateAction).GetObject().DeepCopyObject().(*coordinationv1.Lease)
			before, err := c.Tracker().Get(resource, system, lease.Name)
			if err != nil {
				return true, nil, err
			}
			if before.(*coordinationv1.Lease).ResourceVersion != lease.ResourceVersion {
				return true, nil, apierrors.NewConflict(resource.GroupResource(), lease.Name, nil)
			}
			n++
			lease.ResourceVersion = strconv.Itoa(n)
			return true, lease, c.Tracker().Update(resource, lease, system)
		case "create":
			lease := action.(kubetesting.CreateAction).GetObject().DeepCopyObject().(*coordinationv1.Lease)
			n++
			lease.ResourceVersion = strconv.Itoa(n)
			return true, lease, c.Tracker().Create(resource, lease, system)
		default:
			return false, nil, nil
		}
	})
	return c
}

// replica is one of those that share a fleet.
type replica struct {
	*Elector
	stop  context.CancelFunc
	ended chan error
}

func startReplica(t *testing.T, c *fake.Clientset, name string, shards int) *replica {
	ctx, stop := context.WithCancel(t.Context())
	r := &replica{stop: stop, ended: make(chan error, 1), Elector: &Elector{
		Shards: &Shards{Count: shards}, Client: c, Namespace: system, Identity: name,
		Duration: 2 * time.Second, Deadline: time.Second, Retry: 50 * time.Millisecond, Drain: 10 * time.Second,
	}}
	go func() { r.ended <- r.Start(ctx) }()
	t.Cleanup(stop)
	return r
}

func (r *replica) has() int {
	n := 0
	for shard := range r.Shards.Count {
		if r.Shards.HoldsShard(shard) {
			n++
		}
	}
	return n
}

// requireShares waits until the replicas have so many shards.
func requireShares(t *testing.T, want []int, replicas ...*replica) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for i, r := range replicas {
			require.Equal(c, want[i], r.has(), r.Identity)
		}
	}, 30*time.Second, 10*time.Millisecond)
}

func TestReplicasShareTheFleet(t *testing.T) {
	c := leases()
	a := startReplica(t, c, "a", 3)
	requireShares(t, []int{3}, a)
	b, d := startReplica(t, c, "b", 3), startReplica(t, c, "d", 3)
	requireShares(t, []int{1, 1, 1}, a, b, d)
	held := map[int]string{}
	for _, r := range []*replica{a, b, d} {
		for shard := range 3 {
			if r.Shards.HoldsShard(shard) {
				require.Empty(t, held[shard])
				held[shard] = r.Identity
			}
		}
	}
	require.Len(t, held, 3)

	b.stop()
	require.NoError(t, <-b.ended)
	require.Zero(t, b.has())
	require.EventuallyWithT(t, func(ct *assert.CollectT) { require.Equal(ct, 3, a.has()+d.has()) }, 30*time.Second, 10*time.Millisecond)
	_, err := c.CoordinationV1().Leases(system).Get(t.Context(), memberName("b"), metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))
}

// TestALostLeaseEndsTheReplica: another has taken it, as after a sleep.
func TestALostLeaseEndsTheReplica(t *testing.T) {
	c := leases()
	a := startReplica(t, c, "a", 2)
	requireShares(t, []int{2}, a)
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		lease, err := c.CoordinationV1().Leases(system).Get(t.Context(), shardName(0, 2), metav1.GetOptions{})
		require.NoError(ct, err)
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To("thief"), ptr.To(int32(60))
		_, err = c.CoordinationV1().Leases(system).Update(t.Context(), lease, metav1.UpdateOptions{})
		require.NoError(ct, err)
	}, 10*time.Second, time.Millisecond)
	require.ErrorContains(t, <-a.ended, "lost the Lease of shard 0")
	require.Zero(t, a.has())
	lease, err := c.CoordinationV1().Leases(system).Get(t.Context(), shardName(0, 2), metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "thief", *lease.Spec.HolderIdentity, "which is not released for others")
}

// TestAReplicaThatDiedIsFollowed when its Leases have ended.
func TestAReplicaThatDiedIsFollowed(t *testing.T) {
	c := leases()
	now := metav1.NowMicro()
	for _, name := range []string{shardName(0, 2), memberName("dead")} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name, Labels: map[string]string{divisionLabel: "2"}}}
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("dead"), RenewTime: &now, LeaseDurationSeconds: ptr.To(int32(1))}
		_, err := c.CoordinationV1().Leases(system).Create(t.Context(), lease, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	requireShares(t, []int{2}, startReplica(t, c, "a", 2))
}

// by returns what a Lease says that is held.
func by(holder string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 60, RenewTime: metav1.Now(), AcquireTime: metav1.Now()}
}

// TestAFleetIsDividedInOneWay: whoever has another number of shards waits until all of the others' have been released.
func TestAFleetIsDividedInOneWay(t *testing.T) {
	c := leases()
	a := startReplica(t, c, "a", 2)
	requireShares(t, []int{2}, a)
	b := startReplica(t, c, "b", 3)
	require.Never(t, func() bool { return b.has() > 0 }, 500*time.Millisecond, 10*time.Millisecond)
	single := NewLock(c.CoordinationV1(), system, "single", 0, 1)
	require.ErrorContains(t, single.Create(t.Context(), by("single")), "of a fleet with --shards=2, and this replica has --shards=1")
	a.stop()
	require.NoError(t, <-a.ended)
	requireShares(t, []int{3}, b)
	require.ErrorContains(t, single.Create(t.Context(), by("single")), "--shards=3")
}

// TestOfTwoWhoDivideAFleetOtherwiseOneGivesIn, though neither has seen the other before it acquired.
func TestOfTwoWhoDivideAFleetOtherwiseOneGivesIn(t *testing.T) {
	c := leases()
	one := NewLock(c.CoordinationV1(), system, "one", 0, 1)
	require.NoError(t, one.Create(t.Context(), by("one")))
	late := NewLock(c.CoordinationV1(), system, "late", 0, 2)
	late.held = true // as if it had looked before
	require.NoError(t, late.Create(t.Context(), by("late")))
	require.NoError(t, one.Update(t.Context(), by("one")), "who has it keeps it")
	one.held = false
	require.ErrorContains(t, one.Update(t.Context(), by("one")), "Lease "+shardName(0, 2))
}

func TestLeasesOfReplicasThatAreLongGoneAreDeleted(t *testing.T) {
	c := leases()
	long := metav1.NewMicroTime(time.Now().Add(-2 * time.Hour))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: memberName("gone"), Labels: map[string]string{divisionLabel: "2"}}}
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("gone"), RenewTime: &long, LeaseDurationSeconds: ptr.To(int32(1))}
	_, err := c.CoordinationV1().Leases(system).Create(t.Context(), lease, metav1.CreateOptions{})
	require.NoError(t, err)
	startReplica(t, c, "a", 2)
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		_, err := c.CoordinationV1().Leases(system).Get(t.Context(), memberName("gone"), metav1.GetOptions{})
		require.True(ct, apierrors.IsNotFound(err), fmt.Sprint(err))
	}, 20*time.Second, 10*time.Millisecond)
}
