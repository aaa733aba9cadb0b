// Package index has a manager's cache find Machines and MachineUpdates by their Cluster. By a label it would look at each of a namespace, which may
// have tens of thousands.
package index

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// Cluster is the field by which objects are found.
const Cluster = "cluster"

// Indexed returns the kinds that have the field.
func Indexed() []client.Object {
	return []client.Object{&clusterv1.Machine{}, &refitv1.MachineUpdate{}}
}

// ByCluster returns the value of the field.
func ByCluster(obj client.Object) []string {
	if name := obj.GetLabels()[clusterv1.ClusterNameLabel]; name != "" {
		return []string{name}
	}
	return nil
}

// Setup adds the field to a cache, before it is read.
func Setup(ctx context.Context, indexer client.FieldIndexer) error {
	for _, obj := range Indexed() {
		if err := indexer.IndexField(ctx, obj, Cluster, ByCluster); err != nil {
			return fmt.Errorf("index %T by Cluster: %w", obj, err)
		}
	}
	return nil
}

// InCluster lists what is of a Cluster, of a cache that was set up. The API server does not know the field.
func InCluster(namespace, name string) client.ListOption {
	return client.ListOption(inCluster{namespace, name})
}

type inCluster struct{ namespace, name string }

// ApplyToList implements client.ListOption.
func (c inCluster) ApplyToList(o *client.ListOptions) {
	client.InNamespace(c.namespace).ApplyToList(o)
	client.MatchingFields{Cluster: c.name}.ApplyToList(o)
}
