package heads

import "github.com/prometheus/client_golang/prometheus"

var (
	unpublished = prometheus.NewDesc("refit_audit_unpublished_entries",
		"Entries of this process' audit log that its published head does not cover yet.", nil, nil)
	lost = prometheus.NewDesc("refit_audit_log_lost",
		"1 if the audit log that this process found at its start was not what had been published of it, else 0.", nil, nil)
)

// Describe implements prometheus.Collector.
func (p *Publisher) Describe(ch chan<- *prometheus.Desc) {
	ch <- unpublished
	ch <- lost
}

// Collect implements prometheus.Collector.
func (p *Publisher) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(unpublished, prometheus.GaugeValue, float64(max(0, p.Audit.Tip().Seq-p.seq.Load())))
	is := 0.0
	if p.lost.Load() {
		is = 1
	}
	ch <- prometheus.MustNewConstMetric(lost, prometheus.GaugeValue, is)
}
