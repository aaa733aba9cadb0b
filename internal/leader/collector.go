// Package leader has what only the server that leads shows.
package leader

import "github.com/prometheus/client_golang/prometheus"

// Collector shows what another one collects once this server leads: of several replicas, one tells each fact.
type Collector struct {
	prometheus.Collector
	// Elected is closed when this server leads, as a manager's is.
	Elected <-chan struct{}
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	select {
	case <-c.Elected:
		c.Collector.Collect(ch)
	default:
	}
}
