package pending

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

var machinesDesc = prometheus.NewDesc("refit_change_pending_machines",
	"Machines that a change will touch that was asked for and has not started on them, by what becomes of them: in_place, replacement, upgrade, or unknown.",
	[]string{"namespace", "cluster", "role", "cause"}, nil)

// causeLabels are causes as metrics have them.
var causeLabels = map[refitv1.PendingCause]string{
	refitv1.PendingInPlace: "in_place", refitv1.PendingReplacement: "replacement", refitv1.PendingUpgrade: "upgrade", refitv1.PendingUnknown: "unknown",
}

// Collector shows to Prometheus what PendingChanges say. It reads a cache when it is asked.
type Collector struct{ Client client.Reader }

var _ prometheus.Collector = Collector{}

// Describe implements prometheus.Collector.
func (Collector) Describe(ch chan<- *prometheus.Desc) { ch <- machinesDesc }

// collectTimeout bounds what a scrape may take.
const collectTimeout = 10 * time.Second

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var list refitv1.PendingChangeList
	if err := c.Client.List(ctx, &list); err != nil {
		// An invalid metric would take all others with it.
		ctrl.Log.WithName("metrics").Error(err, "Could not collect what waits")
		return
	}
	type key struct {
		namespace, cluster string
		role               refitv1.Role
		cause              refitv1.PendingCause
	}
	counts := map[key]int32{}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Spec.Role == "" {
			continue // a Cluster says what its owners of Machines say
		}
		for _, c := range p.Status.Causes {
			counts[key{p.Namespace, p.Spec.Cluster, p.Spec.Role, c.Cause}] += c.Machines
		}
	}
	for k, n := range counts {
		ch <- prometheus.MustNewConstMetric(machinesDesc, prometheus.GaugeValue, float64(n), k.namespace, k.cluster, string(k.role), causeLabels[k.cause])
	}
}
