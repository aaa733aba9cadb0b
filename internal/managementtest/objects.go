package managementtest

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// Cluster returns a Cluster with labels.
func Cluster(namespace, name string, labels map[string]string) *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: maps.Clone(labels)}}
}

// Machine returns a worker of the Cluster of a name.
func Machine(namespace, name, cluster string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{clusterv1.ClusterNameLabel: cluster},
	}}
	m.Spec.ClusterName = cluster
	m.Status.NodeRef.Name = "node-" + name
	for _, e := range edits {
		e(m)
	}
	return m
}

// MachineUpdate returns that of a Machine, which has not begun.
func MachineUpdate(m *clusterv1.Machine, edits ...func(*refitv1.MachineUpdate)) *refitv1.MachineUpdate {
	mu := &refitv1.MachineUpdate{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: m.Spec.ClusterName},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine"))},
	}}
	mu.Spec.Digest, mu.Status.ObservedDigest, mu.Status.Phase = "d", "d", refitv1.PhasePending
	for _, e := range edits {
		e(mu)
	}
	return mu
}

// CRD returns the CustomResourceDefinition of a provider's kind. The kind's version is that of the contract, too.
func CRD(plural string, kind schema.GroupVersionKind) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kind.Group, Labels: map[string]string{clusterv1.GroupVersion.String(): kind.Version}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind},
		},
	}
}

// Updatable returns a Machine of the Cluster c1 that refit can update, and all that this takes: a KubeadmConfig with a file, a NodeAccess
// with its Secret, the Cluster and a CustomResourceDefinition, which is the first.
func Updatable(machine types.NamespacedName, node string, file bootstrapv1.File) []client.Object {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: machine.Namespace, Name: name}
	}
	kind := bootstrapv1.GroupVersion.WithKind("KubeadmConfig")
	m := Machine(machine.Namespace, machine.Name, "c1")
	m.UID, m.Status.NodeRef.Name = "uid-1", node
	m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: machine.Name}
	// Any kind that is there will do for an infrastructure machine.
	m.Spec.InfrastructureRef = m.Spec.Bootstrap.ConfigRef
	m.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: "192.0.2.1"}}
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: meta(machine.Name)}
	config.Spec.Files = []bootstrapv1.File{file}
	access := &refitv1.NodeAccess{ObjectMeta: meta("all")}
	access.Spec.SSH = refitv1.SSHAccess{
		User: "refit", Port: 22, PrivateKeySecretRef: refitv1.SecretKeyReference{Name: "ssh"},
		HostKeys: refitv1.HostKeys{Policy: refitv1.HostKeyTrustOnFirstUse},
	}
	return []client.Object{
		CRD("kubeadmconfigs", kind), Cluster(machine.Namespace, "c1", nil), m, config, access,
		&corev1.Secret{ObjectMeta: meta("ssh"), Data: map[string][]byte{"ssh-privatekey": []byte("a key")}},
	}
}
