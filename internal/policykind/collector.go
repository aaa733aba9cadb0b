package policykind

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Collector shows to Prometheus which of the policies that a Reader keeps can be read: 1, or 0.
type Collector[O client.Object, T Policy] struct {
	// Reader keeps the policies.
	Reader *Reader[O, T]
	// Desc is of the metric. Its labels are the namespace and the name of a policy.
	Desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *Collector[O, T]) Describe(ch chan<- *prometheus.Desc) { ch <- c.Desc }

// Collect implements prometheus.Collector.
func (c *Collector[O, T]) Collect(ch chan<- prometheus.Metric) {
	for namespace, policies := range c.Reader.All() {
		for _, p := range policies {
			ready := 1.0
			if p.Head().Err != nil {
				ready = 0
			}
			ch <- prometheus.MustNewConstMetric(c.Desc, prometheus.GaugeValue, ready, namespace, p.Head().Name)
		}
	}
}
