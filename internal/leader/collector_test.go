package leader

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestOnlyTheLeaderTells(t *testing.T) {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "fact", Help: "A fact."})
	leads := false
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(Collector{gauge, func() bool { return leads }})
	shows := func(want int) {
		t.Helper()
		n, err := testutil.GatherAndCount(reg, "fact")
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	shows(0) // another server leads
	leads = true
	shows(1)
}
