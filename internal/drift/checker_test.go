package drift

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func TestTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		uid := types.UID(rapid.StringMatching(`[a-f0-9]{8}`).Draw(t, "uid"))
		interval := time.Duration(rapid.Int64Range(int64(time.Minute), int64(48*time.Hour)).Draw(t, "interval"))
		since := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "since"), 0)
		first := Turn(uid, interval, since)
		require.True(t, first.After(since) && !first.After(since.Add(interval)), "within the interval")
		require.Equal(t, first.Add(interval), Turn(uid, interval, first), "then once an interval")
		require.Equal(t, first, Turn(uid, interval, first.Add(-1)), "the same whoever asks when")
	})
	early, since := 0, time.Unix(1e9, 0)
	for i := range 1000 {
		if Turn(types.UID(fmt.Sprint("uid-", i)), time.Hour, since).Before(since.Add(6 * time.Minute)) {
			early++
		}
	}
	require.InDelta(t, 100, early, 40, "a tenth of the nodes in a tenth of the interval")
}
