package lease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestKeep(t *testing.T) {
	w := newWorld(t)
	h := w.acquire(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	kept := make(chan error, 1)
	go func() { kept <- h.Keep(ctx) }()
	first := w.lease().ResourceVersion
	tick := func() {
		require.Eventually(t, w.clock.HasWaiters, time.Minute, time.Millisecond)
		w.clock.Step(RenewEvery)
	}
	tick()
	require.Eventually(t, func() bool { return w.lease().ResourceVersion != first }, time.Minute, time.Millisecond)
	tick()
	require.Eventually(t, w.clock.HasWaiters, time.Minute, time.Millisecond)
	w.remove(nodeKey)
	tick()
	require.ErrorIs(t, <-kept, ErrLost)
	require.ErrorIs(t, h.Allows(false), ErrLost)

	h = w.acquire(t.Context())
	go func() { kept <- h.Keep(ctx) }()
	cancel()
	require.NoError(t, <-kept)
	require.NoError(t, h.Allows(true))
}

func TestASlowServerDelaysNobodyWhoOnlyAsks(t *testing.T) {
	w := newWorld(t)
	h := w.acquire(t.Context())
	asked, answer := make(chan struct{}), make(chan struct{})
	w.fail = func(verb string, _ client.Object) error {
		if verb == "update" {
			close(asked)
			<-answer
		}
		return nil
	}
	done := make(chan error)
	go func() { done <- h.Renew(t.Context()) }()
	<-asked
	require.NoError(t, h.Allows(true))
	h.Enter("drain")
	require.Positive(t, h.Token())
	close(answer)
	require.NoError(t, <-done)
}

func TestObserver(t *testing.T) {
	lease := func(uid types.UID, holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	}
	o := NewObserver(2)
	require.Zero(t, o.Unchanged(lease("a", "x"), start))
	require.Equal(t, time.Minute, o.Unchanged(lease("a", "x"), start.Add(time.Minute)))
	require.Zero(t, o.Unchanged(lease("a", "y"), start.Add(time.Minute)), "it has changed")
	require.Equal(t, time.Minute, o.Unchanged(lease("a", "y"), start.Add(2*time.Minute)))
	o.Unchanged(lease("b", "x"), start)
	o.Unchanged(lease("c", "x"), start)
	require.Zero(t, o.Unchanged(lease("a", "y"), start.Add(time.Hour)), "it was forgotten for another")
	o.Forget("a")
	require.Zero(t, o.Unchanged(lease("a", "y"), start.Add(2*time.Hour)))
	require.Zero(t, o.Unchanged(lease("", "y"), start))
	require.Zero(t, o.Unchanged(lease("", "y"), start.Add(time.Hour)), "what has no uid is not known again")
	var none *Observer
	none.Forget("a")
	require.Zero(t, none.Unchanged(lease("a", "y"), start))
}

func TestAnotherRefitSaysWhatItDoes(t *testing.T) {
	w := newWorld(t)
	w.acquire(t.Context())
	w.machine = testMachine("of-another-management-cluster")
	require.Contains(t, w.refused(t.Context()).Message, "held by refit/machine-uid since 2026-10-03T19:59:30Z (update d1, drain); ")
}
