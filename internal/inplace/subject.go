package inplace

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Subject is the Machine that something is decided about; of a MachineSet, what all of its Machines have.
type Subject struct {
	Namespace, Cluster string
	// Labels are those of the Machine, or those that the MachineSet gives to its Machines.
	Labels map[string]string
	// Bootstrap is what bootstraps the machine, such as a KubeadmConfig also of a MachineSet. It is empty if it is not known.
	Bootstrap schema.GroupKind
	// Version is the Kubernetes that the machine is to run as long as nothing changes. It is empty if it is not known.
	Version string
}

// SubjectOf returns the Subject that a Machine is.
func SubjectOf(m *clusterv1.Machine) Subject {
	return Subject{Namespace: m.Namespace, Cluster: m.Spec.ClusterName, Labels: m.Labels, Bootstrap: m.Spec.Bootstrap.ConfigRef.GroupKind(), Version: m.Spec.Version}
}

// MadeByKubeadm reports whether a machine is made out of a KubeadmConfig.
func (s Subject) MadeByKubeadm() bool {
	return s.Bootstrap == bootstrapv1.GroupVersion.WithKind("KubeadmConfig").GroupKind()
}
