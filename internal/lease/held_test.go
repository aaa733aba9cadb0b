package lease

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

var errAway = errors.New("connection refused")

func away(string, client.Object) error { return errAway }

// holding are the cases that are about a lease that we hold, by their numbers.
var holding = map[string]func(context.Context, *world, *Held){
	"15 a hold is added in the middle: the step says so, the lease is released": func(ctx context.Context, w *world, h *Held) {
		require.NoError(w.t, h.Check(ctx))
		w.machine.Annotations = map[string]string{refitv1.HoldAnnotation: "disk swap"}
		var held *HeldError
		require.ErrorAs(w.t, h.Check(ctx), &held)
		require.Contains(w.t, held.Message, "disk swap")
		require.NoError(w.t, h.Allows(true), "what is begun may be finished")
		require.NoError(w.t, h.Release(ctx))
		require.ErrorIs(w.t, h.Allows(false), ErrLost)
	},
	"18 another instance takes the Machine's lease: a new token, transitions kept": func(ctx context.Context, w *world, h *Held) {
		w.locker = w.another("refit-1")
		b := w.acquire(ctx)
		require.Greater(w.t, b.Token(), h.Token())
		require.Equal(w.t, int32(0), *w.lease().Spec.LeaseTransitions)
		require.ErrorIs(w.t, h.Renew(ctx), ErrLost)
		require.NoError(w.t, b.Renew(ctx))
	},
	"18 the same instance acquires again: the former is lost": func(ctx context.Context, w *world, h *Held) {
		b := w.acquire(ctx)
		require.Greater(w.t, b.Token(), h.Token())
		require.ErrorIs(w.t, h.Renew(ctx), ErrLost)
		require.ErrorIs(w.t, h.Release(ctx), ErrLost)
		require.NoError(w.t, b.Renew(ctx))
	},
	"19 20 A sleeps past the duration, B took over, A wakes: A may start nothing, and stops": func(ctx context.Context, w *world, a *Held) {
		w.clock.Step(700 * time.Second)
		w.locker = w.another("refit-1")
		b := w.acquire(ctx)
		require.ErrorIs(w.t, a.Allows(true), ErrUnrenewed)
		require.Less(w.t, a.Token(), b.Token(), "the node answers stale")
		require.ErrorIs(w.t, a.Renew(ctx), ErrLost)
		require.ErrorIs(w.t, a.Allows(false), ErrLost)
		require.NoError(w.t, b.Allows(true))
	},
	"21 it is deleted: lost, not made again, and a new token when it is acquired": func(ctx context.Context, w *world, h *Held) {
		w.remove(nodeKey)
		require.ErrorIs(w.t, h.Renew(ctx), ErrLost)
		require.Nil(w.t, w.get(nodeKey))
		require.ErrorIs(w.t, h.Release(ctx), ErrLost)
		require.Greater(w.t, w.acquire(ctx).Token(), h.Token())
		require.ErrorIs(w.t, h.Renew(ctx), ErrLost, "what is lost stays lost")
	},
	"21 it is deleted while it is renewed": func(ctx context.Context, w *world, h *Held) {
		w.fail = func(verb string, _ client.Object) error {
			if verb == "update" {
				w.remove(nodeKey)
			}
			return nil
		}
		require.ErrorIs(w.t, h.Renew(ctx), ErrLost)
		require.Nil(w.t, w.get(nodeKey))
	},
	"21 it is being deleted": func(ctx context.Context, w *world, h *Held) {
		w.edit(nodeKey, func(l *coordinationv1.Lease) { l.DeletionTimestamp = ptr.To(metav1.NewTime(start)) })
		require.ErrorIs(w.t, h.Renew(ctx), ErrLost)
		require.Contains(w.t, w.refused(ctx).Message, "being deleted")
	},
	"21 it is deleted, and another makes it": func(ctx context.Context, w *world, h *Held) {
		old := w.lease()
		w.remove(nodeKey)
		w.edit(nodeKey, func(l *coordinationv1.Lease) { l.Spec, l.Annotations = old.Spec, old.Annotations })
		require.ErrorIs(w.t, h.Renew(ctx), ErrLost)
	},
	"22 it is stolen, and our annotation remains: that counts for nothing": func(ctx context.Context, w *world, h *Held) {
		w.edit(nodeKey, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("NodeHealthCheck-nhc") })
		_, ours := RecordOf(w.lease())
		require.False(w.t, ours)
		err := h.Renew(ctx)
		require.ErrorIs(w.t, err, ErrLost)
		require.ErrorContains(w.t, err, `held by "NodeHealthCheck-nhc"`)
		require.ErrorIs(w.t, h.Release(ctx), ErrLost)
		require.Equal(w.t, "NodeHealthCheck-nhc", w.refused(ctx).Holder)
	},
	"22 our annotation names another instance": func(ctx context.Context, w *world, h *Held) {
		w.edit(nodeKey, func(l *coordinationv1.Lease) { require.NoError(w.t, Record{Instance: "refit-1"}.write(l)) })
		require.ErrorIs(w.t, h.Renew(ctx), ErrLost)
	},
	"22 our annotation is gone": func(ctx context.Context, w *world, h *Held) {
		w.edit(nodeKey, func(l *coordinationv1.Lease) { l.Annotations = nil })
		require.ErrorIs(w.t, h.Renew(ctx), ErrLost)
	},
	"25 the API server is away for three minutes: it goes on with the same token": func(ctx context.Context, w *world, h *Held) {
		token := h.Token()
		w.fail = away
		for range 9 {
			w.clock.Step(RenewEvery)
			err := h.Renew(ctx)
			require.ErrorIs(w.t, err, errAway)
			require.NotErrorIs(w.t, err, ErrLost)
			require.Error(w.t, h.Check(ctx))
			require.NoError(w.t, h.Allows(true))
		}
		w.fail = nil
		require.NoError(w.t, h.Renew(ctx))
		require.Equal(w.t, token, h.Token())
	},
	"26 it is away for two thirds of the duration: only what brings it back": func(ctx context.Context, w *world, h *Held) {
		w.fail = away
		w.clock.Step(400*time.Second - 1)
		require.NoError(w.t, h.Allows(true))
		w.clock.Step(1)
		require.ErrorIs(w.t, h.Allows(true), ErrUnrenewed)
		require.NoError(w.t, h.Allows(false))
		w.fail = func(verb string, _ client.Object) error {
			if verb == "update" {
				w.clock.Step(3 * time.Second)
			}
			return nil
		}
		require.NoError(w.t, h.Renew(ctx))
		w.clock.Step(397*time.Second - 1)
		require.NoError(w.t, h.Allows(true))
		w.clock.Step(1)
		require.ErrorIs(w.t, h.Allows(true), ErrUnrenewed, "since the renewal began, not since it was answered")
	},
	"27 a conflict, but it is still ours: read again": func(ctx context.Context, w *world, h *Held) {
		times := 2
		w.fail = func(verb string, _ client.Object) error {
			if verb == "update" && times > 0 {
				times--
				w.edit(nodeKey, func(l *coordinationv1.Lease) {
					metav1.SetMetaDataLabel(&l.ObjectMeta, "somebody", string(rune('a'+times)))
				})
			}
			return nil
		}
		h.Enter("apply")
		require.NoError(w.t, h.Renew(ctx))
		require.Equal(w.t, "a", w.lease().Labels["somebody"])
		r, _ := RecordOf(w.lease())
		require.Equal(w.t, "apply", r.Step)
	},
	"27 conflicts without end: not renewed, not lost": func(ctx context.Context, w *world, h *Held) {
		w.fail = func(verb string, _ client.Object) error {
			if verb == "update" {
				w.edit(nodeKey, func(l *coordinationv1.Lease) { metav1.SetMetaDataLabel(&l.ObjectMeta, "n", l.ResourceVersion) })
			}
			return nil
		}
		err := h.Renew(ctx)
		require.Error(w.t, err)
		require.NotErrorIs(w.t, err, ErrLost)
		w.fail = nil
		require.NoError(w.t, h.Renew(ctx))
	},
	"30 released: medik8s can take it at once": func(ctx context.Context, w *world, h *Held) {
		require.True(w.t, valid(w.lease(), w.clock.Now()))
		w.edit(nodeKey, func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = ptr.To[int32](7) })
		require.NoError(w.t, h.Release(ctx))
		l := w.lease()
		for skew := -25 * time.Second; skew <= 30*time.Second; skew += time.Second {
			require.False(w.t, valid(l, w.clock.Now().Add(skew)), "whatever its clock says")
		}
		require.NotNil(w.t, l.Spec.HolderIdentity)
		require.Empty(w.t, *l.Spec.HolderIdentity)
		require.Equal(w.t, int32(1), *l.Spec.LeaseDurationSeconds)
		require.Equal(w.t, int32(7), *l.Spec.LeaseTransitions)
		require.NoError(w.t, h.Release(ctx), "a second time does nothing")
		require.Equal(w.t, l, w.lease())
		require.ErrorIs(w.t, h.Renew(ctx), ErrLost)
		w.acquire(ctx)
		require.Equal(w.t, int32(8), *w.lease().Spec.LeaseTransitions)
	},
}

func TestHolding(t *testing.T) {
	for name, test := range holding {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test(t.Context(), w, w.acquire(t.Context()))
		})
	}
}

func TestDurations(t *testing.T) {
	w := newWorld(t)
	w.machine.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
	h := w.acquire(t.Context())
	require.Equal(t, int32(1230), *w.lease().Spec.LeaseDurationSeconds)
	w.clock.Step(799 * time.Second)
	require.NoError(t, h.Allows(true))
	w.clock.Step(time.Second)
	require.ErrorIs(t, h.Allows(true), ErrUnrenewed)
	w.req.Duration = 90500 * time.Millisecond
	w.acquire(t.Context())
	require.Equal(t, int32(121), *w.lease().Spec.LeaseDurationSeconds)
}

// TestAnAnswerThatWasLost is about writes that the API server has made and whose answer did not come.
func TestAnAnswerThatWasLost(t *testing.T) {
	w := newWorld(t)
	lossy := &deaf{Client: w.locker.Client, lose: true}
	w.locker.Client = lossy
	_, err := w.locker.Acquire(t.Context(), w.req)
	require.ErrorIs(t, err, errAway)
	unheard := w.lease()
	require.Equal(t, "refit/machine-uid", *unheard.Spec.HolderIdentity)
	lossy.lose = false
	h := w.acquire(t.Context())
	require.NotEqual(t, unheard.ResourceVersion, w.lease().ResourceVersion)
	require.Equal(t, w.lease().ResourceVersion, strconv.FormatInt(h.Token(), 10))
	lossy.lose = true
	w.clock.Step(RenewEvery)
	require.ErrorIs(t, h.Renew(t.Context()), errAway)
	lossy.lose = false
	require.NoError(t, h.Renew(t.Context()))

	lossy.lose = true
	require.ErrorIs(t, h.Release(t.Context()), errAway)
	require.Empty(t, *w.lease().Spec.HolderIdentity)
	require.ErrorIs(t, h.Allows(true), ErrLost, "another may have it")
	require.ErrorIs(t, h.Renew(t.Context()), ErrLost)
	lossy.lose = false
	require.ErrorIs(t, h.Release(t.Context()), ErrLost, "there is nothing left to release")

	h = w.acquire(t.Context())
	w.fail = away
	require.ErrorIs(t, h.Release(t.Context()), errAway)
	w.fail = nil
	require.NoError(t, h.Release(t.Context()), "it can be tried again")
}

// deaf does not hear the answers to writes.
type deaf struct {
	client.Client
	lose bool
}

func (c *deaf) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	err := c.Client.Create(ctx, obj, opts...)
	if c.lose && obj.GetResourceVersion() != "" {
		return errAway
	}
	return err
}

func (c *deaf) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	err := c.Client.Update(ctx, obj, opts...)
	if c.lose {
		return errAway
	}
	return err
}

// TestALeaseIsNotReadBeforeItIsWritten counts reads of the lease by who holds it: there are none unless somebody else has written it.
func TestALeaseIsNotReadBeforeItIsWritten(t *testing.T) {
	w := newWorld(t)
	h := w.acquire(t.Context())
	reads := 0
	w.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*coordinationv1.Lease); ok && verb == "get" {
			reads++
		}
		return nil
	}
	for range 3 {
		w.clock.Step(time.Second)
		require.NoError(t, h.Renew(t.Context()))
	}
	require.Zero(t, reads)

	w.edit(nodeKey, func(l *coordinationv1.Lease) { l.Labels = map[string]string{"somebody": "s"} })
	reads = 0
	require.NoError(t, h.Renew(t.Context()))
	require.Equal(t, 1, reads)
	require.Equal(t, "s", w.lease().Labels["somebody"], "what others write stays")

	w.clock.Step(time.Second)
	w.mute = true // it is written, and the answer is lost
	require.ErrorIs(t, h.Renew(t.Context()), errAway)
	w.mute = false
	require.NoError(t, h.Renew(t.Context()))
	require.NoError(t, h.Release(t.Context()))
}
