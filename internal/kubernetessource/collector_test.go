package kubernetessource

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestASourceThatCanNotBeReadIsMeasured(t *testing.T) {
	w := newWorld(t, source("a"), source("b", unreadable))
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(w.sources.Collector())
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP refit_kubernetes_source_ready Whether the KubernetesSource can be read: 0 no, and no Machine that it selects is brought to another version; 1 yes.
# TYPE refit_kubernetes_source_ready gauge
refit_kubernetes_source_ready{namespace="fleet",source="a"} 1
refit_kubernetes_source_ready{namespace="fleet",source="b"} 0
`)))
}
