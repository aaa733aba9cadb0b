package machineupdate

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/session"
)

// collectTimeout bounds what a scrape may take.
const collectTimeout = 10 * time.Second

var (
	updatesDesc = prometheus.NewDesc("refit_machine_updates",
		"Machines by the phase of their update, and by why it waits or has failed.", []string{"namespace", "phase", "reason"}, nil)
	driftedDesc = prometheus.NewDesc("refit_drifted_machines",
		"Machines whose nodes no longer showed what was applied to them when they were compared last.", []string{"namespace"}, nil)
	sessionsDesc = prometheus.NewDesc("refit_sessions",
		"Updates that talk to their node or workload cluster, and that wait for a place among these, by state: Running or Waiting.", []string{"state"}, nil)
)

// Collector shows to Prometheus how many updates are in which phase and how many nodes have drifted. It reads a cache when it is
// asked.
type Collector struct {
	Client client.Reader
}

var _ prometheus.Collector = (*Collector)(nil)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- updatesDesc
	ch <- driftedDesc
}

// standing is how updates stand, for the metric.
type standing struct{ namespace, phase, reason string }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var list refitv1.MachineUpdateList
	if err := c.Client.List(ctx, &list); err != nil {
		ctrl.Log.WithName("metrics").Error(err, "Could not collect the metrics of updates")
		return // an invalid metric would take all others with it
	}
	updates, drifted := map[standing]int{}, map[string]int{}
	for i := range list.Items {
		mu := &list.Items[i]
		updates[standingOf(mu)]++
		n := 0
		if meta.IsStatusConditionTrue(mu.Status.Conditions, refitv1.DriftedCondition) {
			n = 1
		}
		drifted[mu.Namespace] += n
	}
	for s, n := range updates {
		ch <- prometheus.MustNewConstMetric(updatesDesc, prometheus.GaugeValue, float64(n), s.namespace, s.phase, s.reason)
	}
	for namespace, n := range drifted {
		ch <- prometheus.MustNewConstMetric(driftedDesc, prometheus.GaugeValue, float64(n), namespace)
	}
}

// SessionsCollector shows to Prometheus how many updates this process talks about with nodes and workload clusters.
type SessionsCollector struct {
	Sessions *session.Queue
}

// Describe implements prometheus.Collector.
func (c SessionsCollector) Describe(ch chan<- *prometheus.Desc) { ch <- sessionsDesc }

// Collect implements prometheus.Collector.
func (c SessionsCollector) Collect(ch chan<- prometheus.Metric) {
	running, waiting := c.Sessions.Load()
	for state, n := range map[string]int{"Running": running, "Waiting": waiting} {
		ch <- prometheus.MustNewConstMetric(sessionsDesc, prometheus.GaugeValue, float64(n), state)
	}
}

// abandoned stands for why an update has failed that a person has acknowledged: it holds nobody up.
const abandoned = "Abandoned"

// standingOf is how an update stands. Reasons in other phases are no news.
func standingOf(mu *refitv1.MachineUpdate) standing {
	s := standing{namespace: mu.Namespace, phase: string(mu.Status.Phase)}
	switch mu.Status.Phase {
	case "":
		s.phase = string(refitv1.PhasePending) // nobody has looked at it yet
	case refitv1.PhaseWaiting:
		s.reason = mu.Status.Reason
	case refitv1.PhaseFailed:
		s.reason = mu.Status.Reason
		if mu.Abandoned() {
			s.reason = abandoned
		}
	default:
	}
	return s
}
