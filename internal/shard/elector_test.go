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

// apiServer returns a fake API server for Leases, which refuses to write what has changed, as the real one does.
func apiServer() *fake.Clientset {
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

func startReplica(t *testing.T, c *fake.Clientset, name string, shards int, edits ...func(*Elector)) *replica {
	ctx, stop := context.WithCancel(t.Context())
	r := &replica{stop: stop, ended: make(chan error, 1), Elector: &Elector{
		Shards: &Shards{Count: shards}, Client: c, Watcher: c, Namespace: system, Identity: name,
		Duration: 2 * time.Second, Deadline: time.Second, Retry: 50 * time.Millisecond, Drain: 10 * time.Second,
	}}
	for _, edit := range edits {
		edit(r.Elector)
	}
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
	c := apiServer()
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

// put writes a Lease as another process does.
func put(t *testing.T, c *fake.Clientset, name, holder string, seconds int32) {
	t.Helper()
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		api := c.CoordinationV1().Leases(system)
		lease, err := api.Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			lease, err = api.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name}}, metav1.CreateOptions{})
		}
		require.NoError(ct, err)
		now := metav1.NowMicro()
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &now, LeaseDurationSeconds: &seconds}
		_, err = api.Update(t.Context(), lease, metav1.UpdateOptions{})
		require.NoError(ct, err)
	}, 10*time.Second, time.Millisecond)
}

func holder(t *testing.T, c *fake.Clientset, name string) string {
	t.Helper()
	lease, err := c.CoordinationV1().Leases(system).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// busy has work go on in a shard, until the function is called that it returns; the channel is closed when the work is told to end.
func (r *replica) busy(t *testing.T, shard int) (told <-chan struct{}, end func()) {
	t.Helper()
	r.Shards.mu.Lock()
	defer r.Shards.mu.Unlock()
	h := r.Shards.held[shard]
	require.NotNil(t, h)
	ctx, leave := h.enter(context.Background())
	return ctx.Done(), leave
}

// TestALostLeaseEndsTheReplica: another has taken it, as after a sleep. The work on its shard is told at once, whatever else is under way.
func TestALostLeaseEndsTheReplica(t *testing.T) {
	c := apiServer()
	a := startReplica(t, c, "a", 2)
	requireShares(t, []int{2}, a)
	lost, end := a.busy(t, 0)
	defer end()
	put(t, c, shardName(0, 2), "thief", 60)
	<-lost
	require.ErrorContains(t, <-a.ended, "lost the Lease of shard 0")
	require.False(t, a.Shards.HoldsShard(0))
	require.Equal(t, "thief", holder(t, c, shardName(0, 2)), "which is not released for others")
}

// TestALostLeaseIsNoticedWhileAnotherShardIsReleased, which takes as long as the work on it.
func TestALostLeaseIsNoticedWhileAnotherShardIsReleased(t *testing.T) {
	c := apiServer()
	a := startReplica(t, c, "a", 2)
	requireShares(t, []int{2}, a)
	_, end0 := a.busy(t, 0)
	defer end0()
	_, end1 := a.busy(t, 1)
	defer end1()
	startReplica(t, c, "b", 2)
	require.EventuallyWithT(t, func(ct *assert.CollectT) { require.Equal(ct, 1, a.has()) }, 20*time.Second, time.Millisecond, "one is being released")
	kept := 0
	if a.Shards.HoldsShard(1) {
		kept = 1
	}
	put(t, c, shardName(kept, 2), "thief", 60)
	require.ErrorContains(t, <-a.ended, fmt.Sprintf("lost the Lease of shard %d", kept))
	require.Zero(t, a.has())
}

// TestAShardOnWhichWorkDoesNotEndIsKept until the process ends, and its Lease with it.
func TestAShardOnWhichWorkDoesNotEndIsKept(t *testing.T) {
	c := apiServer()
	a := startReplica(t, c, "a", 2, func(e *Elector) { e.Drain = 100 * time.Millisecond })
	requireShares(t, []int{2}, a)
	var ends []func()
	for shard := range 2 {
		_, end := a.busy(t, shard)
		ends = append(ends, end)
	}
	b := startReplica(t, c, "b", 2)
	require.ErrorContains(t, <-a.ended, "has not ended within 100ms")
	for shard := range 2 {
		require.Equal(t, "a", holder(t, c, shardName(shard, 2)))
	}
	require.Zero(t, b.has())
	for _, end := range ends {
		end()
	}
}

// TestALeaseThatIsLostWhileItIsReleasedIsNotReleased: the work on the shard has not ended.
func TestALeaseThatIsLostWhileItIsReleasedIsNotReleased(t *testing.T) {
	c := apiServer()
	a := startReplica(t, c, "a", 2)
	requireShares(t, []int{2}, a)
	var ends []func()
	for shard := range 2 {
		_, end := a.busy(t, shard)
		ends = append(ends, end)
	}
	startReplica(t, c, "b", 2)
	require.EventuallyWithT(t, func(ct *assert.CollectT) { require.Equal(ct, 1, a.has()) }, 20*time.Second, time.Millisecond, "one is being released")
	released := 1
	if a.Shards.HoldsShard(1) {
		released = 0
	}
	put(t, c, shardName(released, 2), "thief", 60)
	require.ErrorContains(t, <-a.ended, fmt.Sprintf("lost the Lease of shard %d", released))
	require.Equal(t, "thief", holder(t, c, shardName(released, 2)))
	for _, end := range ends {
		end()
	}
}

// TestALeaseThatWasAnothersIsLost though it is there to be had again: others have worked on the shard meanwhile.
func TestALeaseThatWasAnothersIsLost(t *testing.T) {
	c := apiServer()
	lost := 0
	e := &Elector{Shards: &Shards{Count: 2}, Client: c, Namespace: system, Identity: "a"}
	g := &guard{Interface: e.lockOf(0), lost: func(error) { lost++ }}
	require.NoError(t, g.Create(t.Context(), by("a")))
	_, _, err := g.Get(t.Context())
	require.NoError(t, err)
	put(t, c, shardName(0, 2), "b", 60)
	_, _, err = g.Get(t.Context())
	require.ErrorContains(t, err, "was lost")
	require.Equal(t, 1, lost)
	put(t, c, shardName(0, 2), "", 1)
	_, _, err = g.Get(t.Context())
	require.ErrorContains(t, err, "was lost")
	require.ErrorContains(t, g.Update(t.Context(), by("a")), "was lost")
	require.Equal(t, 1, lost)
}

// TestWhatAnotherReplicaHasRenewedIsRenewed: all that divide a fleet alike write one Lease.
func TestWhatAnotherReplicaHasRenewedIsRenewed(t *testing.T) {
	c := apiServer()
	d := newDivision(c.CoordinationV1(), system, 2)
	require.NoError(t, d.Create(t.Context(), by(d.Identity())))
	meanwhile := d.Identity()
	resource := coordinationv1.SchemeGroupVersion.WithResource("leases")
	c.PrependReactor("update", "leases", func(kubetesting.Action) (bool, runtime.Object, error) {
		if meanwhile != "" { // within a request the tracker is all that can be asked
			obj, err := c.Tracker().Get(resource, system, LeaderLease)
			require.NoError(t, err)
			lease := obj.DeepCopyObject().(*coordinationv1.Lease)
			lease.ResourceVersion += "0"
			lease.Spec.HolderIdentity = ptr.To(meanwhile)
			require.NoError(t, c.Tracker().Update(resource, lease, system))
			meanwhile = ""
		}
		return false, nil, nil
	})
	require.NoError(t, d.Update(t.Context(), by(d.Identity())))
	meanwhile = "replicas with --shards=3"
	require.True(t, apierrors.IsConflict(d.Update(t.Context(), by(d.Identity()))))
	require.ErrorContains(t, d.Update(t.Context(), by(d.Identity())), "has acquired Lease")
}

// TestAReplicaThatDiedIsFollowed when its Leases have ended by the clock of who follows: its own may be hours ahead.
func TestAReplicaThatDiedIsFollowed(t *testing.T) {
	c := apiServer()
	ahead := metav1.NewMicroTime(time.Now().Add(time.Hour))
	for _, name := range []string{shardName(0, 2), memberName("dead"), LeaderLease} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name, Labels: map[string]string{divisionLabel: "2"}}}
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("dead"), RenewTime: &ahead, LeaseDurationSeconds: ptr.To(int32(1))}
		_, err := c.CoordinationV1().Leases(system).Create(t.Context(), lease, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	requireShares(t, []int{2}, startReplica(t, c, "a", 2))
}

// by returns what a Lease says that is held.
func by(holder string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 60, RenewTime: metav1.Now(), AcquireTime: metav1.Now()}
}

// TestAFleetIsDividedInOneWay: whoever has another number of shards waits until the last of the others has ended, and so does a leader of an
// undivided fleet, of whatever version, for whom all of them are another leader; and they for it.
func TestAFleetIsDividedInOneWay(t *testing.T) {
	c := apiServer()
	put(t, c, LeaderLease, "a leader of a version before", 2)
	a, other := startReplica(t, c, "a", 2), startReplica(t, c, "other", 2)
	for range 10 { // it is renewed for a while
		put(t, c, LeaderLease, "a leader of a version before", 2)
		require.Zero(t, a.has()+other.has())
		time.Sleep(50 * time.Millisecond)
	}
	requireShares(t, []int{1, 1}, a, other)
	b := startReplica(t, c, "b", 3)
	require.Never(t, func() bool { return b.has() > 0 }, 3*time.Second, 10*time.Millisecond)
	other.stop()
	require.NoError(t, <-other.ended)
	requireShares(t, []int{2}, a)
	require.Zero(t, b.has(), "one of them is left")
	require.Contains(t, holder(t, c, LeaderLease), "--shards=2")
	a.stop()
	require.NoError(t, <-a.ended)
	requireShares(t, []int{3}, b)
}

// TestWhoSleptWhileAFleetWasDividedOtherwiseEnds when it wakes.
func TestWhoSleptWhileAFleetWasDividedOtherwiseEnds(t *testing.T) {
	c := apiServer()
	a := startReplica(t, c, "a", 2)
	requireShares(t, []int{2}, a)
	lost, end := a.busy(t, 1)
	defer end()
	put(t, c, LeaderLease, "replicas with --shards=3", 60)
	<-lost
	require.ErrorContains(t, <-a.ended, "lost Lease "+LeaderLease)
	require.Zero(t, a.has())
	require.Equal(t, "replicas with --shards=3", holder(t, c, LeaderLease))
}

// TestWhatNobodyTakesIsTaken though it is the turn of another replica, which is there and can't.
func TestWhatNobodyTakesIsTaken(t *testing.T) {
	c := apiServer()
	put(t, c, LeaderLease, "replicas with --shards=2", 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	idle := &Elector{Shards: &Shards{Count: 2}, Client: c, Namespace: system, Identity: "idle", Duration: 2 * time.Second}
	_, leave := idle.attend(ctx)
	defer leave()
	requireShares(t, []int{2}, startReplica(t, c, "a", 2))
}

// slowLock is a Lease that takes a while to be read.
type slowLock struct {
	resourcelock.Interface
	reads chan struct{}
}

func (l slowLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	<-l.reads
	return l.Interface.Get(ctx)
}

// TestAShardIsNotElectedForWhileItsLeaseIsReleased: the release would be taken for that of the next election's.
func TestAShardIsNotElectedForWhileItsLeaseIsReleased(t *testing.T) {
	c := apiServer()
	e := &Elector{Shards: &Shards{Count: 2}, Client: c, Namespace: system, Identity: "a", Duration: 2 * time.Second, Deadline: time.Second, Retry: 50 * time.Millisecond}
	lock := slowLock{e.lockOf(0), make(chan struct{})}
	put(t, c, shardName(0, 2), "a", 60)
	el := &election{lock: lock, leaves: true}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	e.electing = map[int]*election{0: el}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.over(stopped, 0, el)
	}()
	require.NoError(t, e.elect(t.Context(), 0))
	require.Same(t, el, e.electing[0])
	close(lock.reads)
	<-ended
	require.Empty(t, e.electing)
	require.Empty(t, holder(t, c, shardName(0, 2)))
}

func TestLeasesOfReplicasThatAreLongGoneAreDeleted(t *testing.T) {
	c := apiServer()
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
