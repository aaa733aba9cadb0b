package nodedisruption

import (
	"github.com/prometheus/client_golang/prometheus"
)

var readyDesc = prometheus.NewDesc("refit_node_disruption_policy_ready",
	"Whether the NodeDisruptionPolicy can be read: 0 no, and no change of the Machines that it selects is decided; 1 yes.",
	[]string{"namespace", "policy"}, nil)

// Collector shows to Prometheus which policies can be read. It says nothing before its server is the leader, so that each fact
// is there once.
type Collector struct {
	Policies *Policies
	// Elected is closed when this server leads.
	Elected <-chan struct{}
}

var _ prometheus.Collector = (*Collector)(nil)

// Describe implements prometheus.Collector.
func (*Collector) Describe(ch chan<- *prometheus.Desc) { ch <- readyDesc }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	select {
	case <-c.Elected:
	default:
		return
	}
	for _, policies := range c.Policies.read.All() {
		for _, p := range policies {
			ready := 1.0
			if p.Err != nil {
				ready = 0
			}
			ch <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, ready, p.Namespace, p.Name)
		}
	}
}
