package pending

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestWhatWasSeenIsForgotten when nobody is told of it any more: it has copies of all that waits in a namespace.
func TestWhatWasSeenIsForgotten(t *testing.T) {
	w := newWorld(t, inside)
	for _, namespace := range []string{"a", "b"} {
		_, err := w.view.see(t.Context(), namespace)
		require.NoError(t, err)
	}
	require.Len(t, w.view.last, 2)
	w.Clock.Step(again)
	_, err := w.view.see(t.Context(), "c")
	require.NoError(t, err)
	require.Equal(t, []string{"c"}, slices.Collect(maps.Keys(w.view.last)))
}

// TestAllNamespacesTogetherHaveAShareOfTheTime, however many there are.
func TestAllNamespacesTogetherHaveAShareOfTheTime(t *testing.T) {
	w := newWorld(t, inside)
	w.view.Clock = slow{w.Clock, time.Second}
	var took, until time.Duration
	for _, namespace := range []string{"a", "b", "c"} {
		began := w.Clock.Now()
		seen, err := w.view.see(t.Context(), namespace)
		require.NoError(t, err)
		took += w.Clock.Since(began)
		until = max(until, seen.again.Sub(inside))
	}
	require.GreaterOrEqual(t, until, share*took)
}

// TestNoNamespaceWaitsForLongForTheOthers: on a busy machine each view takes seconds, and an edit would be told of after a quarter of an hour.
func TestNoNamespaceWaitsForLongForTheOthers(t *testing.T) {
	w := newWorld(t, inside)
	w.view.Clock = slow{w.Clock, 4 * time.Second}
	for i := range 12 {
		seen, err := w.view.see(t.Context(), fmt.Sprint("ns", i))
		require.NoError(t, err)
		require.LessOrEqual(t, seen.again.Sub(w.Clock.Now()), oldest, "of %d", i)
	}
	require.Equal(t, again, apart(time.Millisecond, 12), "it costs little")
	require.Equal(t, 300*time.Second, apart(time.Second/2, 300), "half of the time at most")
	require.Equal(t, share*time.Minute, apart(time.Minute, 1), "one alone has a share in any case")
}

// slow is a clock by which a look at it takes some time.
type slow struct {
	*clocktesting.FakeClock
	look time.Duration
}

func (c slow) Since(at time.Time) time.Duration {
	c.Step(c.look)
	return c.FakeClock.Since(at)
}
