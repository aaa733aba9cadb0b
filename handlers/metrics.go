package handlers

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capi-refit/refit/internal/fieldset"
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
			Help: "Changed fields that could not be updated in place, by hook, object and field. List items are left out of the field.",
		}, []string{"hook", "object", "field"}),
	}
	r.MustRegister(m.decisions, m.fields)
	return m
}

func (m *Metrics) decided(kind, outcome string) {
	m.decisions.WithLabelValues(strings.TrimSuffix(kind, "Request"), outcome).Inc()
}

// The number of label values is bounded by how deep fields are named: below that there may be mappings with keys of any name.
const (
	maxFieldDepth = 4
	// maxUnknownDepth is for schemas that refit does not know: a provider's spec.additionalTags has such keys.
	maxUnknownDepth = 1
)

func (m *Metrics) left(kind string, f fieldset.Field, byKubeadm bool) {
	m.fields.WithLabelValues(strings.TrimSuffix(kind, "Request"), string(f.Object), labelOf(f, byKubeadm)).Inc()
}

func labelOf(f fieldset.Field, byKubeadm bool) string {
	deepest := maxFieldDepth
	if f.Object == fieldset.InfrastructureMachine || f.Object == fieldset.BootstrapConfig && !byKubeadm {
		deepest = maxUnknownDepth
	}
	name := "spec"
	for i, e := range f.Path {
		switch {
		case i == deepest:
			return name + ".…"
		case e.FieldName != nil:
			name += "." + *e.FieldName
		default:
			name += "[]"
		}
	}
	return name
}
