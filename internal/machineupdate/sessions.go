package machineupdate

import (
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/machineupdate/flow"
)

// outside are the commands that are the first to talk to a node or a workload cluster. What comes after them may do so as well. See
// docs/adr/0032-sessions-beside-the-queue.md.
var outside = map[flow.Command]bool{
	flow.AskWork: true, flow.AskLogin: true, flow.ReleaseNode: true, flow.ReleaseMachine: true, flow.ReachWorkload: true, flow.Connect: true,
}

// clusterKey is the Cluster whose sessions an update's are among.
func (u *update) clusterKey() types.NamespacedName {
	if u.regarding != nil {
		return clusterOf(u.regarding)
	}
	return types.NamespacedName{Namespace: u.mu.Namespace, Name: u.mu.Labels[clusterv1.ClusterNameLabel]}
}
