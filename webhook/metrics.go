package webhook

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics measures requests.
type Metrics struct {
	seconds *prometheus.HistogramVec
	refused *prometheus.CounterVec
	limits  atomic.Pointer[limits]
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "refit_hook_request_duration_seconds",
			Help:    "How long hooks took to answer, by hook and status of the response.",
			Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"hook", "status"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refit_hook_requests_refused_total",
			Help: "Requests that no handler saw, by reason: Method, TooLarge, Slow, Shape, Busy or Broken.",
		}, []string{"reason"}),
	}
	for _, reason := range refusedReasons {
		m.refused.WithLabelValues(reason)
	}
	r.MustRegister(m.seconds, m.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "refit_hook_request_bytes",
		Help: "Bytes that the bodies of requests hold which arrive or are not answered yet. They are bounded.",
	}, m.held))
	return m
}

// show has the metrics show what requests hold.
func (m *Metrics) show(l *limits) { m.limits.Store(l) }

func (m *Metrics) held() float64 {
	l := m.limits.Load()
	if l == nil {
		return 0
	}
	return float64(l.small.inUse() + l.large.inUse())
}

func (m *Metrics) observe(hook, status string, d time.Duration) {
	m.seconds.WithLabelValues(hook, status).Observe(d.Seconds())
}

// NewClientCertificatesRequired registers a metric that reports whether clients must show a certificate.
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

// seldom lets something be logged once in a while, so that whoever is refused can't fill the log.
type seldom struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// between is how long nothing more is logged of one kind.
const between = time.Second

func newSeldom() *seldom { return &seldom{last: map[string]time.Time{}} }

// allow reports whether something of a kind is to be logged now. There are only few kinds.
func (s *seldom) allow(kind string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.last[kind]; ok && now.Sub(last) < between {
		return false
	}
	s.last[kind] = now
	return true
}
