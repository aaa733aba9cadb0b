package nodedisruption

import (
	"github.com/prometheus/client_golang/prometheus"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
)

var readyDesc = prometheus.NewDesc("refit_node_disruption_policy_ready",
	"Whether the NodeDisruptionPolicy can be read: 0 no, and no change of the Machines that it selects is decided; 1 yes.",
	[]string{"namespace", "policy"}, nil)

// Collector shows to Prometheus which policies can be read.
func (p *Policies) Collector() prometheus.Collector {
	return &policykind.Collector[*refitv1.NodeDisruptionPolicy, *Policy]{Reader: p.Reader, Desc: readyDesc}
}
