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
