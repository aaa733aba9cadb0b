package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KnownHostSpec is by what a host is recognized.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a recorded host key can't be changed; to have refit record the next key that the node shows, delete the KnownHost"
type KnownHostSpec struct {
	// hostKey is the SSH host key that the node showed at the first contact, a line as in authorized_keys.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	HostKey string `json:"hostKey"`

	// fingerprint is that of hostKey, as `ssh-keygen -lf` shows it. It is for people.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Fingerprint string `json:"fingerprint,omitempty"`
}

// KnownHost is the SSH host key that the node of the Machine of the same name showed at the first contact, where a NodeAccess trusts on
// first use. It is made by refit, belongs to the Machine that owns it, and goes and moves with it. Delete it to have refit record the
// next key that the node shows.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=knownhosts,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Machine",type="string",JSONPath=".metadata.ownerReferences[0].name"
// +kubebuilder:printcolumn:name="Fingerprint",type="string",JSONPath=".spec.fingerprint"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type KnownHost struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is by what the host is recognized. Nothing changes it.
	// +required
	Spec KnownHostSpec `json:"spec"`
}

// KnownHostList is a list of KnownHosts.
//
// +kubebuilder:object:root=true
type KnownHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KnownHost `json:"items"`
}
