package machineupdate

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DriftMetrics counts comparisons of nodes with what was applied to them.
type DriftMetrics struct{ checks *prometheus.CounterVec }

// NewDriftMetrics registers the metrics.
func NewDriftMetrics(r prometheus.Registerer) *DriftMetrics {
	m := &DriftMetrics{checks: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refit_drift_checks_total",
		Help: "Comparisons of nodes with what was applied to them, by outcome: AsApplied, Drifted or Unknown.",
	}, []string{"outcome"})}
	r.MustRegister(m.checks)
	return m
}

func (m *DriftMetrics) checked(status metav1.ConditionStatus) {
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
