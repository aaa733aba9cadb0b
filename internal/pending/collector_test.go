package pending

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestCollected(t *testing.T) {
	objects := append(fleet(command), saturdays("a"), worker("w1", outdated), worker("w2", outdated), worker("w3", outdated), update("w3", held))
	w := newWorld(t, outside, objects...)
	require.NoError(t, testutil.CollectAndCompare(Collector{w}, strings.NewReader("")))
	w.show("Cluster", "c1")
	require.NoError(t, testutil.CollectAndCompare(Collector{w}, strings.NewReader(`
# HELP refit_change_pending_machines Machines that a change will touch that was asked for and has not started on them, by what becomes of them: in_place, replacement, upgrade, or unknown.
# TYPE refit_change_pending_machines gauge
refit_change_pending_machines{cause="in_place",cluster="c1",namespace="fleet",role="Worker"} 1
refit_change_pending_machines{cause="replacement",cluster="c1",namespace="fleet",role="Worker"} 2
`)))
}
