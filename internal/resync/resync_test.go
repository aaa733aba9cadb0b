package resync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/resync"
)

func TestManyDoNotStayTogether(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 1000 {
		in := resync.In()
		require.GreaterOrEqual(t, in, resync.Every*3/4)
		require.LessOrEqual(t, in, resync.Every)
		seen[in.Truncate(time.Second)] = true
	}
	require.Greater(t, len(seen), 100)
}

func TestThoseWhoShareALookLookTogether(t *testing.T) {
	start := time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC)
	const quick = resync.Seldom / 32
	for pace := quick; pace <= resync.Seldom; pace *= 2 {
		beats := map[time.Time]bool{}
		for i := range 100 {
			now := start.Add(time.Duration(i) * pace / 200)
			in := resync.Beat(now, "fleet", pace)
			require.GreaterOrEqual(t, in, pace/2)
			require.LessOrEqual(t, in, pace*3/2)
			at := now.Add(in)
			beats[at] = true
			require.Equal(t, quick, resync.Beat(at, "fleet", quick), "a beat of the quickest pace, too")
		}
		require.LessOrEqual(t, len(beats), 2)
	}
	require.NotEqual(t, resync.Beat(start, "fleet", resync.Seldom), resync.Beat(start, "other", resync.Seldom))
}
