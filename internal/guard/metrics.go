package guard

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what became of edits. Dry runs are not counted.
type Metrics struct{ edits, unasked *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{edits: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refit_guard_edits_total",
		Help: "Edits that the guard was asked about, by kind of object and what became of them: passed, warned, refused, bypassed, or unjudged.",
	}, []string{"kind", "outcome"}), unasked: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refit_guard_unasked_total",
		Help: "Owners, and parts of topologies, of which an edit was stored by which Cluster API replaces machines without asking anybody, by cause.",
	}, []string{"cause"})}
	r.MustRegister(m.edits, m.unasked)
	return m
}

func (m *Metrics) count(kind string, v *verdict) {
	m.edits.WithLabelValues(kind, string(v.outcome)).Inc()
	if v.outcome == refused {
		return
	}
	for _, c := range v.unasked {
		m.unasked.WithLabelValues(string(c)).Inc()
	}
}
