package snapshot

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReadCollector shows to Prometheus which of the objects that a Reader keeps can be read: 1, or 0.
type ReadCollector[O client.Object, T Named] struct {
	// Reader keeps the objects.
	Reader *Reader[O, T]
	// Desc is of the metric. Its labels are the namespace and the name of an object.
	Desc *prometheus.Desc
	// Err returns why an object can't be read, or nil.
	Err func(T) error
}

// Describe implements prometheus.Collector.
func (c *ReadCollector[O, T]) Describe(ch chan<- *prometheus.Desc) { ch <- c.Desc }

// Collect implements prometheus.Collector.
func (c *ReadCollector[O, T]) Collect(ch chan<- prometheus.Metric) {
	for namespace, objects := range c.Reader.All() {
		for _, o := range objects {
			ready := 1.0
			if c.Err(o) != nil {
				ready = 0
			}
			ch <- prometheus.MustNewConstMetric(c.Desc, prometheus.GaugeValue, ready, namespace, o.GetName())
		}
	}
}
