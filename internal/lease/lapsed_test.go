package lease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUnholdLapsed(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	over := func(admin string) bool {
		t.Helper()
		over, err := w.locker.UnholdLapsed(ctx, "w1", admin, func(context.Context) (bool, error) { return false, nil })
		require.NoError(t, err)
		return over
	}
	require.True(t, over("ann"), "there is no lease")
	require.NoError(t, w.locker.Hold(ctx, "w1", "ann", "disk swap", time.Hour))
	require.False(t, over("ann"))
	w.clock.Step(time.Hour - time.Second)
	require.False(t, over("ann"))
	require.True(t, over("bob"), "it is not his")
	require.NoError(t, w.locker.Hold(ctx, "w1", "ann", "disk swap", 2*time.Hour))
	w.clock.Step(time.Hour)
	require.False(t, over("ann"), "it was renewed")
	held := w.refused(ctx)
	require.Equal(t, "admin/ann", held.Holder)

	w.clock.Step(time.Hour)
	require.True(t, over("ann"))
	w.acquire(ctx)
	require.True(t, over("ann"), "it is refit's now")

	w = newWorld(t)
	require.NoError(t, w.locker.Hold(ctx, "w1", "ann", "disk swap", 0))
	w.clock.Step(1000 * time.Hour)
	require.False(t, over("ann"), "without an end it never is")

	renewed, err := w.locker.UnholdLapsed(ctx, "w1", "ann", func(ctx context.Context) (bool, error) {
		return true, w.locker.Hold(ctx, "w1", "ann", "disk swap", time.Hour)
	})
	require.NoError(t, err)
	require.False(t, renewed, "who renews it while it is asked keeps it")
	ended, err := w.locker.UnholdLapsed(ctx, "w1", "ann", func(context.Context) (bool, error) { return true, nil })
	require.NoError(t, err)
	require.True(t, ended, "its end was brought forward")
	w.acquire(ctx)
}

func TestHolders(t *testing.T) {
	w := newWorld(t)
	who := func() map[string]string {
		t.Helper()
		holders, err := w.locker.Holders(t.Context())
		require.NoError(t, err)
		return holders
	}
	require.Empty(t, who())
	w.foreign("node-maintenance", start, 3600)
	require.Equal(t, map[string]string{"w1": "node-maintenance"}, who())
	w.clock.Step(time.Hour + Tolerance)
	require.Len(t, who(), 1)
	w.clock.Step(time.Second)
	require.Empty(t, who(), "its time is over")

	w = newWorld(t)
	w.acquire(t.Context())
	require.Empty(t, who(), "refit itself")
	w = newWorld(t)
	require.NoError(t, w.locker.Hold(t.Context(), "w1", "ann", "", time.Hour))
	w.clock.Step(2 * time.Hour)
	require.Equal(t, map[string]string{"w1": "admin/ann"}, who())
}
