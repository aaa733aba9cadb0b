package machineupdate

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// driftCollectTimeout bounds what a scrape may take.
const driftCollectTimeout = 10 * time.Second

var driftedDesc = prometheus.NewDesc("refit_drifted_machines",
	"Machines whose nodes no longer showed what was applied to them when they were compared last.", []string{"namespace"}, nil)

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

// DriftCollector shows to Prometheus how many nodes have drifted. It reads a cache when it is asked, and says nothing before its
// server is the leader, so that each fact is there once.
type DriftCollector struct {
	Client client.Reader
	// Elected is closed when this server leads.
	Elected <-chan struct{}
}

var _ prometheus.Collector = (*DriftCollector)(nil)

// Describe implements prometheus.Collector.
func (c *DriftCollector) Describe(ch chan<- *prometheus.Desc) { ch <- driftedDesc }

// Collect implements prometheus.Collector.
func (c *DriftCollector) Collect(ch chan<- prometheus.Metric) {
	select {
	case <-c.Elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), driftCollectTimeout)
	defer cancel()
	var list refitv1.MachineUpdateList
	if err := c.Client.List(ctx, &list); err != nil {
		ctrl.Log.WithName("metrics").Error(err, "Could not collect the metrics of drift")
		return // an invalid metric would take all others with it
	}
	drifted := map[string]int{}
	for i := range list.Items {
		n := 0
		if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, refitv1.DriftedCondition) {
			n = 1
		}
		drifted[list.Items[i].Namespace] += n
	}
	for namespace, n := range drifted {
		ch <- prometheus.MustNewConstMetric(driftedDesc, prometheus.GaugeValue, float64(n), namespace)
	}
}
