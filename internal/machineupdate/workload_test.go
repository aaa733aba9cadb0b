package machineupdate

import (
	"k8s.io/utils/clock"

	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

const nodeName = "n1"

// newWorkload returns the cluster that the machine is a node of, with another one to which pods can go.
func newWorkload(now clock.PassiveClock) *workloadtest.Cluster {
	return workloadtest.New(now, workloadtest.Node(nodeName), workloadtest.Node("n2"))
}
