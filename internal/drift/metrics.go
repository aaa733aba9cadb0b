package drift

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metrics counts comparisons of nodes with what was applied to them.
type Metrics struct{ checks *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{checks: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refit_drift_checks_total",
		Help: "Comparisons of nodes with what was applied to them, by outcome: AsApplied, Drifted or Unknown.",
	}, []string{"outcome"})}
	r.MustRegister(m.checks)
	return m
}

func (m *Metrics) checked(status metav1.ConditionStatus) {
	outcome := "Unknown"
	switch status {
	case metav1.ConditionTrue:
		outcome = "Drifted"
	case metav1.ConditionFalse:
		outcome = "AsApplied"
	default:
	}
	m.checks.WithLabelValues(outcome).Inc()
}
