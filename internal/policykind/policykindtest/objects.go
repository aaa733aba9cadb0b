package policykindtest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/managementtest"
)

// Namespace is that of all that is made here.
const Namespace = "fleet"

// Key returns the key of what has a name.
func Key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: Namespace, Name: name}
}

// Request returns the request to reconcile what has a name.
func Request(name string) ctrl.Request { return ctrl.Request{NamespacedName: Key(name)} }

// Cluster returns a Cluster with labels.
func Cluster(name string, labels map[string]string) *clusterv1.Cluster {
	return managementtest.Cluster(Namespace, name, labels)
}

// Machine returns a worker of a Cluster.
func Machine(name, cluster string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	return managementtest.Machine(Namespace, name, cluster, edits...)
}

// Label has a Machine with a label.
func Label(key, value string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) { metav1.SetMetaDataLabel(&m.ObjectMeta, key, value) }
}

// Annotation has a Machine with an annotation.
func Annotation(key, value string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) { metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, value) }
}

// ControlPlane makes a Machine one of the control plane.
func ControlPlane(m *clusterv1.Machine) { Label(clusterv1.MachineControlPlaneLabel, "")(m) }
