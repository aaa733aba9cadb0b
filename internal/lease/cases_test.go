package lease

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// holdsOfALease have a hold appear before an acquisition, and between its two looks.
var holdsOfALease = []func(*world){
	func(w *world) { w.cluster.Spec.Paused = ptr.To(true) },
	func(w *world) {
		w.fail = func(verb string, _ client.Object) error {
			if verb == "update" {
				w.fail = nil
				w.cluster.Spec.Paused = ptr.To(true)
			}
			return nil
		}
	},
}

// acquiring are the cases that are about acquiring, by their numbers.
var acquiring = map[string]func(context.Context, *world){
	"1 no lease: it is made, with transitions 0, the write's resourceVersion as token, and the Node as owner": func(ctx context.Context, w *world) {
		h := w.acquire(ctx)
		l := w.lease()
		require.Equal(w.t, "refit/machine-uid", *l.Spec.HolderIdentity)
		require.Equal(w.t, int32(0), *l.Spec.LeaseTransitions)
		require.Equal(w.t, strconv.FormatInt(h.Token(), 10), l.ResourceVersion)
		require.Equal(w.t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "w1", UID: w.nodeUID()}}, l.OwnerReferences)
		require.Equal(w.t, start.Add(-30*time.Second), l.Spec.RenewTime.UTC())
		require.Equal(w.t, int32(630), *l.Spec.LeaseDurationSeconds)
		r, ok := RecordOf(l)
		require.True(w.t, ok)
		require.Equal(w.t, Record{Instance: "refit-0", Operation: "update d1", Step: "drain"}, r)
		require.NoError(w.t, h.Renew(ctx))
		r, _ = RecordOf(w.lease())
		require.Equal(w.t, h.Token(), r.Token, "from the first renewal on")
	},
	"2 two create it: the other was faster, so it is held": func(ctx context.Context, w *world) {
		w.fail = func(verb string, _ client.Object) error {
			if verb == "create" {
				w.fail = nil
				w.foreign("NodeHealthCheck-nhc", start, 660)
				w.written--
			}
			return nil
		}
		held := w.refused(ctx)
		require.Equal(w.t, "NodeHealthCheck-nhc", held.Holder)
		require.True(w.t, apierrors.IsAlreadyExists(held))
	},
	"3 two update it when it has lapsed: who meets the conflict does not have it": func(ctx context.Context, w *world) {
		w.foreign("node-maintenance", start.Add(-time.Hour), 60)
		w.waits(ctx)
		w.clock.Step(66 * time.Second)
		w.fail = func(verb string, _ client.Object) error {
			if verb == "update" {
				w.fail = nil
				w.foreign("NodeHealthCheck-nhc", w.clock.Now(), 660)
				w.written--
			}
			return nil
		}
		held := w.refused(ctx)
		require.True(w.t, apierrors.IsConflict(held))
		require.Equal(w.t, "NodeHealthCheck-nhc", held.Holder)
	},
	"4 a valid lease of the node-maintenance-operator: the holder is named": func(ctx context.Context, w *world) {
		w.foreign("node-maintenance", start.Add(-time.Minute), 3600)
		held := w.refused(ctx)
		require.Equal(w.t, "node-maintenance", held.Holder)
		require.Equal(w.t, start.Add(-time.Minute), held.Since.UTC())
		require.Contains(w.t, held.Message, "node lease held by node-maintenance since 2026-10-03T19:59:00Z; ")
		require.Contains(w.t, held.Message, "release it with: kubectl delete lease -n medik8s-leases node-w1")
	},
	"5 its lease has lapsed, but a NodeMaintenance is there": func(ctx context.Context, w *world) {
		require.NoError(w.t, w.Create(ctx, nodeMaintenance("w1")))
		w.foreign("node-maintenance", start, 3600)
		w.waits(ctx)
		w.clock.Step(3960 * time.Second)
		held := w.refused(ctx)
		require.Equal(w.t, NodeMaintenance, held.Holds[0].Kind)
		require.Contains(w.t, held.Message, "(disk swap); release it with: kubectl delete nodemaintenance nm-w1")
	},
	"6 its lease has lapsed, and none is there: taken after 3960 s": func(ctx context.Context, w *world) {
		require.NoError(w.t, w.Create(ctx, nodeMaintenance("w2")))
		w.foreign("node-maintenance", start, 3600)
		w.waits(ctx)
		w.clock.Step(3959 * time.Second)
		w.edit(nodeKey, func(l *coordinationv1.Lease) { l.Labels = map[string]string{"somebody": "s"} })
		w.waits(ctx)
		w.clock.Step(time.Second)
		w.acquire(ctx)
		require.Equal(w.t, int32(4), *w.lease().Spec.LeaseTransitions)
		require.Equal(w.t, "s", w.lease().Labels["somebody"])
	},
	"7 the same, with a restart at 3000 s: the watch starts again": func(ctx context.Context, w *world) {
		w.foreign("node-maintenance", start, 3600)
		w.waits(ctx)
		w.clock.Step(3000 * time.Second)
		w.locker = w.another("refit-0b")
		w.waits(ctx)
		w.clock.Step(3959 * time.Second)
		w.waits(ctx)
		w.clock.Step(time.Second)
		w.acquire(ctx)
	},
	"8 a renewTime three days old is not believed at first sight": func(ctx context.Context, w *world) {
		w.foreign("node-maintenance", start.Add(-72*time.Hour), 60)
		require.Equal(w.t, "node-maintenance", w.refused(ctx).Holder)
	},
	"9 a renewTime an hour ahead, and still renewed": func(ctx context.Context, w *world) {
		for range 50 {
			w.foreign("node-maintenance", w.clock.Now().Add(time.Hour), 60)
			w.waits(ctx)
			w.clock.Step(65 * time.Second)
		}
	},
	"10 our clock is 20 s ahead: medik8s sees that we hold it": func(ctx context.Context, w *world) {
		w.server = func() time.Time { return w.clock.Now().Add(-20 * time.Second) }
		h := w.acquire(ctx)
		for range 10 {
			require.True(w.t, valid(w.lease(), w.server()))
			require.True(w.t, valid(w.lease(), w.clock.Now()), "also one whose clock is right with ours")
			w.clock.Step(RenewEvery)
			require.NoError(w.t, h.Renew(ctx))
		}
	},
	"11 our clock is 60 s ahead: refused": func(ctx context.Context, w *world) {
		var clock *ClockError
		for _, skew := range []time.Duration{60 * time.Second, 31 * time.Second, -60 * time.Second} {
			w.server = func() time.Time { return w.clock.Now().Add(-skew) }
			_, err := w.locker.Acquire(ctx, w.req)
			require.ErrorAs(w.t, err, &clock)
			require.InDelta(w.t, skew.Seconds(), clock.Ahead.Seconds(), 1)
			require.Zero(w.t, w.written)
		}
		require.ErrorContains(w.t, clock, "behind")
	},
	"12 no duration, or no renewTime": func(ctx context.Context, w *world) {
		w.foreign("x", start, 60)
		w.edit(nodeKey, func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil })
		w.waits(ctx)
		w.clock.Step(1000 * time.Hour)
		require.Contains(w.t, w.refused(ctx).Message, "does not lapse")
		w.foreign("x", start, 60)
		w.edit(nodeKey, func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil })
		w.waits(ctx)
		w.clock.Step(1000 * time.Hour)
		w.waits(ctx)
	},
	"13 a holder who is an administrator, with or without times": func(ctx context.Context, w *world) {
		for _, holder := range []string{"kubeadmin-bob", "kubeadm", "admin/ann"} {
			w.foreign(holder, start, 60)
			w.waits(ctx)
			w.clock.Step(1000 * time.Hour)
			w.waits(ctx)
			w.edit(nodeKey, func(l *coordinationv1.Lease) { l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder} })
			require.Equal(w.t, holder, w.refused(ctx).Holder)
		}
	},
	"14 a node that an administrator holds by the command": func(ctx context.Context, w *world) {
		require.NoError(w.t, w.locker.Hold(ctx, "w1", "ann", "disk swap", 0))
		w.clock.Step(1000 * time.Hour)
		require.True(w.t, valid(w.lease(), w.clock.Now()))
		require.Contains(w.t, w.refused(ctx).Message, "node lease held by admin/ann since 2026-10-03T19:59:30Z (disk swap); ")
		var held *HeldError
		require.ErrorAs(w.t, w.locker.Hold(ctx, "w1", "bob", "", time.Hour), &held)
		require.ErrorAs(w.t, w.locker.Unhold(ctx, "w1", "bob"), &held)
		require.NoError(w.t, w.locker.Unhold(ctx, "w1", "ann"))
		require.False(w.t, valid(w.lease(), w.clock.Now()))
		h := w.acquire(ctx)
		require.NotContains(w.t, w.lease().Annotations, HoldReasonAnnotation)
		require.ErrorAs(w.t, w.locker.Hold(ctx, "w1", "ann", "", 0), &held, "an update is under way")
		require.NoError(w.t, h.Release(ctx))
		require.NoError(w.t, w.locker.Hold(ctx, "w1", "ann", "", 0))
	},
	"16 a hold appears between the check and the acquisition: the second check releases": func(ctx context.Context, w *world) {
		hold := func(verb string, _ client.Object) error {
			if verb == "create" || verb == "update" {
				w.fail = nil
				w.cluster.Spec.Paused = ptr.To(true)
			}
			return nil
		}
		for range 2 { // a new lease, and one that is there
			w.fail, w.cluster.Spec.Paused = hold, nil
			ended, cancel := context.WithCancel(ctx)
			_, err := w.locker.Acquire(ended, w.req)
			cancel()
			var held *HeldError
			require.ErrorAs(w.t, err, &held)
			require.Equal(w.t, Paused, held.Holds[0].Kind)
			require.Empty(w.t, *w.lease().Spec.HolderIdentity)
			require.False(w.t, valid(w.lease(), w.clock.Now()))
		}
	},
	"16 a hold appears while work is under way: that keeps its lease": func(ctx context.Context, w *world) {
		w.req.UnderWay = true
		for _, hold := range holdsOfALease {
			w.acquire(ctx)
			hold(w)
			var held *HeldError
			_, err := w.locker.Acquire(ctx, w.req)
			require.ErrorAs(w.t, err, &held)
			require.Equal(w.t, "refit/machine-uid", *w.lease().Spec.HolderIdentity)
			require.True(w.t, valid(w.lease(), w.clock.Now()))
			w.cluster.Spec.Paused = nil
		}
	},
	"16 a hold appears while nothing is under way: a lease of an earlier try does not stay behind": func(ctx context.Context, w *world) {
		for _, hold := range holdsOfALease {
			w.acquire(ctx)
			hold(w)
			var held *HeldError
			_, err := w.locker.Acquire(ctx, w.req)
			require.ErrorAs(w.t, err, &held)
			require.Empty(w.t, *w.lease().Spec.HolderIdentity)
			require.False(w.t, valid(w.lease(), w.clock.Now()))
			w.cluster.Spec.Paused = nil
		}
	},
	"16 a lease of an earlier try can't be released: that is told": func(ctx context.Context, w *world) {
		w.acquire(ctx)
		w.cluster.Spec.Paused = ptr.To(true)
		w.fail = func(verb string, _ client.Object) error {
			if verb == "update" {
				return errAway
			}
			return nil
		}
		_, err := w.locker.Acquire(ctx, w.req)
		var held *HeldError
		require.ErrorAs(w.t, err, &held)
		require.ErrorContains(w.t, err, "the lease of an earlier try stays until it lapses")
	},
	"16 the second check fails: that is not free either": func(ctx context.Context, w *world) {
		ended, cancel := context.WithCancel(ctx)
		defer cancel()
		looks := 0
		w.req.Facts = func(context.Context) (Facts, error) {
			if looks++; looks > 1 {
				cancel()
				return Facts{}, errors.New("management cluster away")
			}
			return w.facts(ctx)
		}
		_, err := w.locker.Acquire(ended, w.req)
		require.ErrorContains(w.t, err, "management cluster away")
		require.Empty(w.t, *w.lease().Spec.HolderIdentity, "released, although the caller has gone")
	},
	"23 the Node was registered again": func(ctx context.Context, w *world) {
		w.req.NodeUID = "node-uid-before"
		_, err := w.locker.Acquire(ctx, w.req)
		require.ErrorIs(w.t, err, ErrNodeReplaced)
		w.req.NodeUID = w.nodeUID()
		h := w.acquire(ctx)
		require.NoError(w.t, w.Delete(ctx, testNode()))
		require.ErrorIs(w.t, h.Check(ctx), ErrNodeGone)
		again := testNode()
		again.UID = "node-uid-after"
		require.NoError(w.t, w.Create(ctx, again))
		require.ErrorIs(w.t, h.Check(ctx), ErrNodeReplaced)
		w.machine = testMachine("another")
		require.ErrorIs(w.t, h.Check(ctx), ErrMachineReplaced)
	},
	"24 no nodeRef: another try, and no lease": func(ctx context.Context, w *world) {
		w.machine.Status.NodeRef.Name = ""
		_, err := w.locker.Acquire(ctx, w.req)
		require.ErrorIs(w.t, err, ErrNoNode)
		w.machine.Status.NodeRef.Name = "w9"
		_, err = w.locker.Acquire(ctx, w.req)
		require.ErrorIs(w.t, err, ErrNodeGone)
		require.Zero(w.t, w.written)
	},
}

// TestAcquiring covers the cases 1 to 14, 16, 23 and 24 of the protocol, and TestHolding 15, 18 to 22, 25 to 27 and 30, as far
// as the lease goes. Of these the connections that must not be made (4, 16), what the controller does with a hold (15), and
// what the node answers (18, 19, 20) belong to the controller and the agent. Not here at all: which replica answers (17), slots
// (28), markers (29), CanUpdate (31).
func TestAcquiring(t *testing.T) {
	for name, test := range acquiring {
		t.Run(name, func(t *testing.T) { test(t.Context(), newWorld(t)) })
	}
}
