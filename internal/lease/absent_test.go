package lease

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// absentWorld is one whose node had no lease a moment ago, and whose clocks agree.
func absentWorld(t *testing.T) *world {
	w := newWorld(t)
	w.clock.SetTime(w.time())
	w.req.Absent = true
	return w
}

func TestALeaseThatWasAbsentIsMadeWithoutARead(t *testing.T) {
	w := absentWorld(t)
	w.fail = func(verb string, obj client.Object) error {
		if lease, ok := obj.(*coordinationv1.Lease); ok && (verb == "dry run" || verb == "get" && lease.Name == nodeKey.Name) {
			return errors.New("it need not be asked")
		}
		return nil
	}
	h := w.acquire(t.Context())
	require.True(t, valid(w.lease(), w.clock.Now()))
	require.NoError(t, h.Renew(t.Context()))
	require.NoError(t, h.Release(t.Context()))
}

func TestALeaseThatIsThereAfterAll(t *testing.T) {
	t.Run("another's", func(t *testing.T) {
		w := absentWorld(t)
		w.foreign("node-maintenance", w.clock.Now(), 60)
		require.Equal(t, "node-maintenance", w.refused(t.Context()).Holder)
	})
	t.Run("that of an earlier try whose answer was lost", func(t *testing.T) {
		w := absentWorld(t)
		w.mute = true
		_, err := w.locker.Acquire(t.Context(), w.req)
		require.ErrorIs(t, err, errAway)
		w.mute = false
		made := w.lease()
		h := w.acquire(t.Context())
		require.Equal(t, made.UID, w.lease().UID)
		require.NoError(t, h.Renew(t.Context()))
	})
	t.Run("that of another leader", func(t *testing.T) {
		w := absentWorld(t)
		before, err := w.another("refit-1").Acquire(t.Context(), w.req)
		require.NoError(t, err)
		h := w.acquire(t.Context())
		require.Greater(t, h.Token(), before.Token())
		require.ErrorIs(t, before.Renew(t.Context()), ErrLost)
		require.NoError(t, h.Renew(t.Context()))
	})
}

// TestALeaseThatIsMadeByAWrongClock is released at once, and nobody has the node.
func TestALeaseThatIsMadeByAWrongClock(t *testing.T) {
	for _, skew := range []time.Duration{time.Minute, 32 * time.Second, -time.Minute} {
		w := absentWorld(t)
		w.clock.SetTime(w.time().Add(skew))
		h, err := w.locker.Acquire(t.Context(), w.req)
		require.Nil(t, h)
		var wrong *ClockError
		require.ErrorAs(t, err, &wrong)
		require.InDelta(t, skew.Seconds(), wrong.Ahead.Seconds(), 2)
		require.Empty(t, *w.lease().Spec.HolderIdentity)
	}
}
