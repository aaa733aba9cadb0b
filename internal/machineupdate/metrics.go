package machineupdate

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// Metrics counts and measures updates.
type Metrics struct {
	total   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	steps   *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refit_machine_updates_finished_total",
			Help: "Updates of machines that have ended, by outcome: Succeeded or Failed.",
		}, []string{"outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "refit_machine_update_duration_seconds",
			Help:    "How long updates took that were admitted, from then on, by the worst that they were to take on the node (class) and how they ended (result).",
			Buckets: []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600},
		}, []string{"class", "result"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "refit_node_step_duration_seconds",
			Help:    "How long changes and actions on nodes took, by what they were (class: Write, Reload, Restart, Reboot and so on) and how they ended (result).",
			Buckets: []float64{0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800},
		}, []string{"class", "result"}),
	}
	r.MustRegister(m.total, m.seconds, m.steps)
	return m
}

// unplanned is the class of an update of which no node has said what it takes.
const unplanned = "Unknown"

// finished measures an update that has ended with a status, and what the node says of its last run, if that is known.
func (m *Metrics) finished(s *refitv1.MachineUpdateStatus, run node.Status) {
	result := string(s.Phase)
	m.total.WithLabelValues(result).Inc()
	if d, ok := duration(s); ok {
		class := unplanned
		if s.Plan != nil && s.Plan.Disruption != "" {
			class = classOf(s.Plan.Disruption)
		}
		m.seconds.WithLabelValues(class, result).Observe(d.Seconds())
	}
	if s.FinishedAt == nil {
		return
	}
	for _, step := range believed(run, s, s.FinishedAt.Time).Steps {
		if step.Class != "" && !step.FinishedAt.IsZero() {
			m.steps.WithLabelValues(step.Class, resultOf(step)).Observe(step.FinishedAt.Sub(step.StartedAt).Seconds())
		}
	}
}

// otherClass stands for words for what updates and steps take that are none: a node says what it wants.
const otherClass = "Other"

func classOf(word string) string {
	switch {
	case disruption.ActionType(word).Known(), slices.Contains([]node.Operation{node.Write, node.Remove, node.Restore}, node.Operation(word)):
		return word
	default:
		return otherClass
	}
}

// resultOf is how a step of a run has ended. One that is neither done nor has failed was cut off with its run.
func resultOf(t node.StepTime) string {
	if t.Failed || t.FinishedAt.IsZero() {
		return string(node.Failed)
	}
	return string(node.Succeeded)
}

// duration is how long the work of an update that has ended took, without what it waited for before it was admitted. It returns false for one that
// was not admitted.
func duration(s *refitv1.MachineUpdateStatus) (time.Duration, bool) {
	since, ok := workedSince(s)
	if !ok || s.FinishedAt == nil {
		return 0, false
	}
	return max(0, s.FinishedAt.Sub(since)), true // the clocks of two servers
}
