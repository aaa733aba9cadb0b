package bootimage

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
)

// The templates are read to tell from what a machine was made, and the infrastructure machines of a kind are listed, so that a
// fleet takes one request for a few hundred machines.
//
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=*,verbs=get;list
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get

// chunk is how many infrastructure machines are read at once.
const chunk = 500

// kindOf returns the kind of a Machine's infrastructure machine.
func kindOf(m *clusterv1.Machine) schema.GroupKind {
	return schema.GroupKind{Group: m.Spec.InfrastructureRef.APIGroup, Kind: m.Spec.InfrastructureRef.Kind}
}

// readMachine reads the infrastructure machine of a Machine in the version that Cluster API uses.
func readMachine(ctx context.Context, live client.Reader, m *clusterv1.Machine) (*unstructured.Unstructured, error) {
	ref := m.Spec.InfrastructureRef
	obj, err := external.GetObjectFromContractVersionedRef(ctx, live, ref, m.Namespace)
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	return obj, nil
}

// eachMachine calls visit with each infrastructure machine of a kind in a namespace. In which version, one of them tells.
func eachMachine(ctx context.Context, live client.Reader, one *unstructured.Unstructured, visit func(*unstructured.Unstructured)) error {
	gvk := one.GroupVersionKind()
	gvk.Kind += "List"
	for next := ""; ; {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(gvk)
		err := live.List(ctx, &list, client.InNamespace(one.GetNamespace()), client.Limit(chunk), client.Continue(next))
		if err != nil {
			return fmt.Errorf("list %s in namespace %s: %w", gvk.Kind, one.GetNamespace(), err)
		}
		for i := range list.Items {
			visit(&list.Items[i])
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}
