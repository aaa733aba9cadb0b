package kubernetessource

import (
	"github.com/prometheus/client_golang/prometheus"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
)

var readyDesc = prometheus.NewDesc("refit_kubernetes_source_ready",
	"Whether the KubernetesSource can be read: 0 no, and no Machine that it selects is brought to another version; 1 yes.",
	[]string{"namespace", "source"}, nil)

// Collector shows to Prometheus which sources can be read.
func (s *Sources) Collector() prometheus.Collector {
	return &policykind.Collector[*refitv1.KubernetesSource, *Source]{Reader: s.Reader, Desc: readyDesc}
}
