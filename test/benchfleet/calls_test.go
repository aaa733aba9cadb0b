package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNobodyCallsMeanwhile, and who would have does so as much later: else all of them would at once.
func TestNobodyCallsMeanwhile(t *testing.T) {
	now := time.Now()
	c := &callers{next: timetable{{at: now}, {at: now.Add(time.Hour)}}}
	require.NoError(t, c.without(func() error {
		_, wait := c.nextDue()
		require.Positive(t, wait)
		time.Sleep(time.Millisecond)
		return nil
	}))
	later := c.next[0].at.Sub(now)
	require.GreaterOrEqual(t, later, time.Millisecond)
	require.Equal(t, time.Hour+later, c.next[1].at.Sub(now))
}
