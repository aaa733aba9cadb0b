package handlers

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// TestErrorsAreCountedFromNothing: the first sample of a series is no increase, and Cluster API asks most often at first.
func TestErrorsAreCountedFromNothing(t *testing.T) {
	r := prometheus.NewRegistry()
	m := NewMetrics(r)
	n, err := testutil.GatherAndCount(r, "refit_can_update_decisions_total")
	require.NoError(t, err)
	require.Equal(t, 2, n)
	m.decided("CanUpdateMachineRequest", outcomeError)
	m.decided("CanUpdateMachineSetRequest", outcomeError)
	n, err = testutil.GatherAndCount(r, "refit_can_update_decisions_total")
	require.NoError(t, err)
	require.Equal(t, 2, n, "these are they")
}
