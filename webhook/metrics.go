package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics measures requests.
type Metrics struct{ seconds *prometheus.HistogramVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "refit_hook_request_duration_seconds",
		Help:    "How long hooks took to answer, by hook and status of the response.",
		Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"hook", "status"})}
	r.MustRegister(m.seconds)
	return m
}

func (m *Metrics) observe(hook, status string, d time.Duration) {
	m.seconds.WithLabelValues(hook, status).Observe(d.Seconds())
}

// NewClientCertificatesRequired registers a metric that says whether clients must show a certificate.
func NewClientCertificatesRequired(r prometheus.Registerer, required bool) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "refit_hook_client_certificates_required",
		Help: "1 if hooks are answered to clients with an accepted certificate only, 0 if to anybody who reaches the port.",
	})
	if required {
		g.Set(1)
	}
	r.MustRegister(g)
}
