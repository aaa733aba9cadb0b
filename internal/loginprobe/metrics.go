package loginprobe

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// Metrics counts logins that try whether nodes can be reached.
type Metrics struct{ probes *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{probes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refit_login_probes_total",
		Help: "Logins that try whether nodes can be reached, by outcome: Reached, NodeAccess, Unreachable, HostKey or Agent.",
	}, []string{"outcome"})}
	r.MustRegister(m.probes)
	return m
}

func (m *Metrics) probed(f *Finding) {
	outcome := f.Reason
	if outcome == "" {
		outcome = refitv1.NodeAccessReached
	}
	m.probes.WithLabelValues(outcome).Inc()
}

// collectTimeout bounds what a scrape may take.
const collectTimeout = 10 * time.Second

var (
	machinesDesc = prometheus.NewDesc("refit_nodeaccess_machines",
		"Machines with a node that a NodeAccess selects.", []string{"namespace", "nodeaccess"}, nil)
	unreachedDesc = prometheus.NewDesc("refit_nodeaccess_unreached_machines",
		"Machines that a NodeAccess selects and to whose node the last login failed.", []string{"namespace", "nodeaccess"}, nil)
)

// Collector shows to Prometheus how many nodes can't be reached, as the status of each NodeAccess says. It reads a cache when it is asked.
type Collector struct {
	Client client.Reader
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- machinesDesc
	ch <- unreachedDesc
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var list refitv1.NodeAccessList
	if err := c.Client.List(ctx, &list); err != nil {
		ctrl.Log.WithName("metrics").Error(err, "Could not collect the metrics of NodeAccesses")
		return // an invalid metric would take all others with it
	}
	for _, na := range list.Items {
		for desc, n := range map[*prometheus.Desc]*int32{machinesDesc: na.Status.Machines, unreachedDesc: na.Status.Unreachable} {
			if n != nil { // else nobody has looked at it yet
				ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(ptr.Deref(n, 0)), na.Namespace, na.Name)
			}
		}
	}
}
