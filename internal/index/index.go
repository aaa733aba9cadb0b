// Package index has a manager's cache find Machines and MachineUpdates by their Cluster or MachineSet, and those of which a change is wanted. By a label
// it would look at each of a namespace, which may have tens of thousands.
package index

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// Cluster is the field by which objects are found.
const Cluster = "cluster"

// Unsettled is the field of those of which a change is wanted, or under way. Its value is that word.
const Unsettled = "unsettled"

// MachineSet is the field of those that a MachineSet controls. Its value is the MachineSet's name.
const MachineSet = "machineSet"

// Indexed returns the kinds that have the field.
func Indexed() []client.Object {
	return []client.Object{&clusterv1.Machine{}, &refitv1.MachineUpdate{}}
}

// ByCluster returns the value of the field. A Machine is of the Cluster that its spec names, whatever its labels say.
func ByCluster(obj client.Object) []string {
	name := obj.GetLabels()[clusterv1.ClusterNameLabel]
	if m, ok := obj.(*clusterv1.Machine); ok && m.Spec.ClusterName != "" {
		name = m.Spec.ClusterName
	}
	if name == "" {
		return nil
	}
	return []string{name}
}

// Setup adds the fields to a cache, before it is read.
func Setup(ctx context.Context, indexer client.FieldIndexer) error {
	for _, obj := range Indexed() {
		for field, by := range Fields() {
			if err := indexer.IndexField(ctx, obj, field, by); err != nil {
				return fmt.Errorf("index %T by %s: %w", obj, field, err)
			}
		}
		informers, ok := indexer.(Informers)
		if !ok {
			continue // nor does it have a memory to look into
		}
		informer, err := informers.GetInformer(ctx, obj)
		if err == nil {
			err = informer.AddIndexers(inMemory())
		}
		if err != nil {
			return fmt.Errorf("index %T: %w", obj, err)
		}
	}
	return nil
}

// Fields returns the fields, and what returns the values of each.
func Fields() map[string]client.IndexerFunc {
	return map[string]client.IndexerFunc{Cluster: ByCluster, MachineSet: ByMachineSet, Unsettled: ByUnsettled}
}

// Where is which objects are meant: those that have a value of a field in a namespace, all of a namespace, or, if it is zero, all.
type Where struct{ namespace, field, value string }

// InNamespace is what is in a namespace, or everything if that is empty.
func InNamespace(namespace string) Where { return Where{namespace: namespace} }

// InCluster is what is of a Cluster, in a cache that was set up. The API server does not know the field.
func InCluster(namespace, name string) Where { return Where{namespace, Cluster, name} }

// OfMachineSet is what a MachineSet controls, in a cache that was set up.
func OfMachineSet(namespace, name string) Where { return Where{namespace, MachineSet, name} }

// OnlyUnsettled is what is unsettled in a namespace, in a cache that was set up.
func OnlyUnsettled(namespace string) Where { return Where{namespace, Unsettled, Unsettled} }

// ApplyToList implements client.ListOption.
func (w Where) ApplyToList(o *client.ListOptions) {
	client.InNamespace(w.namespace).ApplyToList(o)
	if w.field != "" {
		client.MatchingFields{w.field: w.value}.ApplyToList(o)
	}
}

// ByMachineSet returns the name of the MachineSet that controls an object.
func ByMachineSet(obj client.Object) []string {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil && owner.Kind == "MachineSet" {
		return []string{owner.Name}
	}
	return nil
}

// ByUnsettled returns the value of Unsettled: of a Machine that its owner does not call up to date, and of a MachineUpdate that has not succeeded.
func ByUnsettled(obj client.Object) []string {
	unsettled := false
	switch o := obj.(type) {
	case *clusterv1.Machine:
		unsettled = meta.IsStatusConditionFalse(o.Status.Conditions, clusterv1.MachineUpToDateCondition)
	case *refitv1.MachineUpdate:
		unsettled = o.Status.Phase != refitv1.PhaseSucceeded || o.Status.ObservedDigest != o.Spec.Digest
	}
	if unsettled {
		return []string{Unsettled}
	}
	return nil
}
