package machineupdate

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts and measures updates.
type Metrics struct {
	total   *prometheus.CounterVec
	seconds prometheus.Histogram
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refit_machine_updates_finished_total",
			Help: "Updates of machines that have ended, by outcome: Succeeded or Failed.",
		}, []string{"outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "refit_machine_update_duration_seconds",
			Help:    "How long updates that succeeded took, from when they were admitted.",
			Buckets: []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600},
		}),
	}
	r.MustRegister(m.total, m.seconds)
	return m
}

func (m *Metrics) finished(ok bool, d time.Duration) {
	if !ok {
		m.total.WithLabelValues("Failed").Inc()
		return
	}
	m.total.WithLabelValues("Succeeded").Inc()
	m.seconds.Observe(d.Seconds())
}
