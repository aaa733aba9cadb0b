package selection

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Count counts the Machines of a namespace that are selected. Those whose Cluster is gone go with it.
func (s Selector) Count(ctx context.Context, from client.Reader, namespace string) (int32, error) {
	var machines clusterv1.MachineList
	if err := from.List(ctx, &machines, client.InNamespace(namespace)); err != nil {
		return 0, fmt.Errorf("list Machines: %w", err)
	}
	clusters := map[string]bool{}
	var selected int32
	for i := range machines.Items {
		m := &machines.Items[i]
		matches, known := clusters[m.Spec.ClusterName]
		if !known {
			var cluster clusterv1.Cluster
			key := types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClusterName}
			err := from.Get(ctx, key, &cluster)
			if client.IgnoreNotFound(err) != nil {
				return 0, fmt.Errorf("read Cluster %s: %w", key, err)
			}
			matches = err == nil && s.Cluster(cluster.Labels)
			clusters[m.Spec.ClusterName] = matches
		}
		if matches && s.Machine(RoleOf(m.Labels), m.Labels) {
			selected++
		}
	}
	return selected, nil
}
