// Package leader has what only the server that leads shows.
package leader

import "github.com/prometheus/client_golang/prometheus"

// Collector shows what another one collects once this server leads: of several replicas, one tells each fact.
type Collector struct {
	prometheus.Collector
	// Leads reports whether this server leads.
	Leads func() bool
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	if c.Leads() {
		c.Collector.Collect(ch)
	}
}
