package changemanagement

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

var gateDesc = prometheus.NewDesc("refit_change_management_gate_open",
	"Whether a health gate of the policy holds: 0 no, 1 yes, -1 not known; of several clusters the worst. There is no sample while nobody asks.",
	[]string{"namespace", "policy", "gate"}, nil)

// Metrics counts what overrides have let start, and what nobody was asked about.
type Metrics struct{ overrides, passed, remediations *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{overrides: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refit_change_management_overrides_total",
		Help: "Changes that an override has let start, by kind: permissive-until, or bypass-change-management.",
	}, []string{"namespace", "cluster", "kind"}), passed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refit_change_management_stops_passed_total",
		Help: "Changes that a bypass has let start though a restrictive-until stops all others.",
	}, []string{"namespace", "cluster"}), remediations: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refit_change_management_remediations_total",
		Help: "Machines that Cluster API has begun to replace for a MachineHealthCheck though a policy protects them, by what does: forbid, or window.",
	}, []string{"namespace", "cluster", "protection"})}
	r.MustRegister(m.overrides, m.passed, m.remediations)
	return m
}

func (m *Metrics) overridden(s *Candidate, d *Decision) {
	for _, o := range d.By {
		m.overrides.WithLabelValues(s.Namespace, s.Cluster, o.Kind).Inc()
	}
	if len(d.Passed) > 0 {
		m.passed.WithLabelValues(s.Namespace, s.Cluster).Inc()
	}
}

// ForgetClusters has what was counted of a Cluster go when that is deleted.
func (m *Metrics) ForgetClusters(ctx context.Context, all cache.Informers) error {
	clusters, err := all.GetInformer(ctx, &clusterv1.Cluster{}, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = clusters.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
			if unseen, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unseen.Obj
			}
			if cluster, ok := obj.(client.Object); ok {
				m.forget(client.ObjectKeyFromObject(cluster))
			}
		}})
	}
	if err != nil {
		return fmt.Errorf("watch Clusters that go: %w", err)
	}
	return nil
}

func (m *Metrics) forget(cluster client.ObjectKey) {
	of := prometheus.Labels{"namespace": cluster.Namespace, "cluster": cluster.Name}
	for _, counter := range []*prometheus.CounterVec{m.overrides, m.passed, m.remediations} {
		counter.DeletePartialMatch(of)
	}
}
