package bootimage

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

var (
	policyLabels = []string{"namespace", "policy"}

	readyDesc = prometheus.NewDesc("refit_boot_image_policy_ready",
		"Whether the BootImagePolicy can be read: 0 no, and no change of an image is decided for the Machines that it selects; 1 yes.",
		policyLabels, nil)
	machinesDesc = prometheus.NewDesc("refit_boot_image_machines",
		"Machines that the BootImagePolicy selects.", policyLabels, nil)
	skewedDesc = prometheus.NewDesc("refit_boot_image_skewed_machines",
		"Machines that have booted, or would boot again, from an image older than the BootImagePolicy's minimumVersion.", policyLabels, nil)
	unknownDesc = prometheus.NewDesc("refit_boot_image_unknown_machines",
		"Machines of which it is not known from which image they have booted or, where a minimumVersion counts, in which version.",
		policyLabels, nil)
	staleDesc = prometheus.NewDesc("refit_stale_templates",
		"Whether templates would make machines with an older version of Kubernetes than machines run that the BootImagePolicy selects: 0 no; 1 yes.",
		policyLabels, nil)
)

// Collector shows to Prometheus what the statuses of policies say. It reads a cache when it is asked.
type Collector struct {
	Client client.Reader
}

var _ prometheus.Collector = (*Collector)(nil)

// Describe implements prometheus.Collector.
func (*Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{readyDesc, machinesDesc, skewedDesc, unknownDesc, staleDesc} {
		ch <- d
	}
}

// collectTimeout bounds what a scrape may take.
const collectTimeout = 10 * time.Second

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var list refitv1.BootImagePolicyList
	if err := c.Client.List(ctx, &list); err != nil {
		ctrl.Log.WithName("metrics").Error(err, "Could not collect the metrics of boot images")
		return // an invalid metric would take all others with it
	}
	for i := range list.Items {
		p := &list.Items[i]
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, p.Namespace, p.Name)
		}
		if ready := meta.FindStatusCondition(p.Status.Conditions, refitv1.ReadyCondition); ready != nil {
			gauge(readyDesc, truth(meta.IsStatusConditionTrue(p.Status.Conditions, refitv1.ReadyCondition)))
		}
		if stale := meta.FindStatusCondition(p.Status.Conditions, refitv1.StaleTemplatesCondition); stale != nil {
			gauge(staleDesc, truth(stale.Status == metav1.ConditionTrue))
		}
		if m := p.Status.Machines; m != nil {
			gauge(machinesDesc, float64(m.Total))
			gauge(skewedDesc, float64(m.Skewed))
			gauge(unknownDesc, float64(m.Unknown))
		}
	}
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
