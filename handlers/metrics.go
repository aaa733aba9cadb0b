package handlers

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of a CanUpdate hook, as labels.
const (
	outcomeInPlace = "InPlace"
	outcomeReplace = "Replace"
	outcomeError   = "Error"
	// A policy has Cluster API ask again.
	outcomeWithheld = "Withheld"
)

// Metrics counts what was decided.
type Metrics struct {
	decisions *prometheus.CounterVec
	fields    *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refit_can_update_decisions_total",
			Help: "CanUpdate hooks answered, by hook and by what Cluster API does then: InPlace, Replace, Withheld (by a policy; it asks again), or Error (it asks again).",
		}, []string{"hook", "outcome"}),
		fields: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refit_can_update_fields_left_total",
			Help: "Changed fields that could not be updated in place, by hook, object and field. List items are left out of the field. A field that refit does not know is other, and what is below one that it knows is shown as that one with .….",
		}, []string{"hook", "object", "field"}),
	}
	// From 0 on, so that what fails first counts in an increase, too: an alert looks at these.
	for _, hook := range []string{"CanUpdateMachine", "CanUpdateMachineSet"} {
		m.decisions.WithLabelValues(hook, outcomeError)
	}
	r.MustRegister(m.decisions, m.fields)
	return m
}

func (m *Metrics) decided(kind, outcome string) {
	m.decisions.WithLabelValues(strings.TrimSuffix(kind, "Request"), outcome).Inc()
}

func (m *Metrics) left(kind string, f fieldLabel) {
	m.fields.WithLabelValues(strings.TrimSuffix(kind, "Request"), string(f.object), f.field).Inc()
}
