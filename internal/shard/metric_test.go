package shard

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// led returns what leader_election_master_status says of shards.
func led(t *testing.T, shards int) []float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	require.NoError(t, err)
	of := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "leader_election_master_status" {
			continue
		}
		for _, m := range f.GetMetric() {
			of[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	out := make([]float64, shards)
	for shard := range out {
		out[shard] = of[shardName(shard, shards)]
	}
	return out
}

// TestTheMetricTellsWhichShardsAreReleased: client-go forgets to tell of an election that is ended between two renewals.
func TestTheMetricTellsWhichShardsAreReleased(t *testing.T) {
	a := startReplica(t, apiServer(), "a", 7) // no other test has seven
	requireShares(t, []int{7}, a)
	require.Equal(t, []float64{1, 1, 1, 1, 1, 1, 1}, led(t, 7))
	a.stop()
	require.NoError(t, <-a.ended)
	require.Equal(t, make([]float64, 7), led(t, 7))
}
