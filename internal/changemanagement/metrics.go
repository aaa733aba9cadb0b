package changemanagement

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what overrides have let through.
type Metrics struct{ overrides *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{overrides: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refit_change_management_overrides_total",
		Help: "Changes that an override has let start, by kind: permissive-until, or bypass-change-management.",
	}, []string{"namespace", "cluster", "kind"})}
	r.MustRegister(m.overrides)
	return m
}

func (m *Metrics) overridden(s *Candidate, by Overrides) {
	for _, o := range by {
		m.overrides.WithLabelValues(s.Namespace, s.Cluster, o.Kind).Inc()
	}
}
