package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// BootedImageAnnotation on a Machine is the image that the machine has booted from, as its infrastructure machine named it
	// when it was made: "path=value" for each field of the image, without what may be a secret; "implicit: v1.36.1" where the
	// provider finds the image by the Kubernetes version; "unknown" where nothing tells it. It is written once.
	BootedImageAnnotation = "capi-refit.dev/booted-image"

	// BootImageSkewCondition reports whether machines have booted, or would boot, from an image that is too old for the policy.
	BootImageSkewCondition = "BootImageSkew"

	// StaleTemplatesCondition reports whether machines that are made from templates now would come up with an older version of Kubernetes than
	// machines that run. It is there only where images are named by versions of Kubernetes.
	StaleTemplatesCondition = "StaleTemplates"

	// ForeignMachinesCondition is there, and True, as long as something else than Cluster API controls infrastructure machines of
	// selected Machines.
	ForeignMachinesCondition = "ForeignMachines"
)

// BootImageMode says of which machines the image may change in place.
// +kubebuilder:validation:Enum=All;Partial;None
type BootImageMode string

// Of which machines the image may change in place.
const (
	// AllBootImages: of all that the policy's selector selects.
	AllBootImages BootImageMode = "All"
	// PartialBootImages: of those among them that have the labels.
	PartialBootImages BootImageMode = "Partial"
	// NoBootImages: of none of them.
	NoBootImages BootImageMode = "None"
)

// BootImageSelection says of which machines the image may change in place.
// +kubebuilder:validation:XValidation:rule="(self.mode == 'Partial') == has(self.machines)",message="machines is needed for Partial, and not possible for All and None"
type BootImageSelection struct {
	// mode is All for the machines that the policy's selector selects, Partial for those among them that machines selects, or
	// None. Where several policies select a machine, it may change only if all of them let it.
	// +required
	Mode BootImageMode `json:"mode"`

	// machines selects by the labels of the Machine, for Partial.
	// +optional
	Machines *metav1.LabelSelector `json:"machines,omitempty"`
}

// BootImageKind names the image fields of an infrastructure provider's machines.
type BootImageKind struct {
	// group of the machines' API, such as infrastructure.cluster.x-k8s.io.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Group string `json:"group"`

	// kind of the machines, such as AWSMachine; not that of their templates.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][a-zA-Z0-9]*$`
	// +kubebuilder:validation:XValidation:rule="!self.endsWith('Template')",message="kind is that of the machines, not of their templates"
	Kind string `json:"kind"`

	// paths of the fields below spec that say what a machine boots from, such as image.url; each stands for all below it. Items of
	// lists have no name: volumes.image is the image of every volume.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[a-zA-Z][a-zA-Z0-9_-]*(\.[a-zA-Z][a-zA-Z0-9_-]*)*$`
	// +kubebuilder:validation:items:XValidation:rule="self != 'spec' && !self.startsWith('spec.')",message="paths are below spec: leave out the spec. in front"
	Paths []string `json:"paths"`
}

// BootImagePolicySpec says of which machines the image may change with no effect on the machines that run, and how old the
// images of machines may be.
type BootImagePolicySpec struct {
	// selector says which Machines of the namespace the policy is for. Empty: all.
	// +optional
	Selector MachinesSelector `json:"selector,omitzero"`

	// selection says of which of these machines the image may change in place: the change takes nothing on the nodes that run,
	// and counts for machines that are made later. It is for those whose operating system is maintained in place.
	// +required
	Selection BootImageSelection `json:"selection"`

	// minimumVersion is the version that images must have at least, such as 9.6.1 or v1.36.0: numbers with dots between them.
	// Empty: any.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^v?[0-9]+(\.[0-9]+)*$`
	MinimumVersion string `json:"minimumVersion,omitempty"`

	// versionPattern is the regular expression (RE2) whose first group is the version in an image's name, numbers with dots
	// between them. Of several matches the last one counts. Empty: v?(\d+\.\d+\.\d+).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.contains('(')",message="versionPattern needs a group, which is the version"
	VersionPattern string `json:"versionPattern,omitempty"`

	// kinds adds image fields to those that are built in. A field that a provider's webhook does not let change is not claimed,
	// whatever is listed here.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=kind
	// +kubebuilder:validation:MaxItems=20
	Kinds []BootImageKind `json:"kinds,omitempty"`

	// rotation keeps infrastructure templates at a golden image. Empty: templates are left alone.
	// +optional
	Rotation *BootImageRotation `json:"rotation,omitempty"`
}

// BootImageMachines counts the Machines that the policy's selector selects.
type BootImageMachines struct {
	// total is how many there are.
	// +required
	Total int32 `json:"total"`

	// selected is of how many the image may change in place, as far as this policy says.
	// +required
	Selected int32 `json:"selected"`

	// atSpecImage is how many have booted from the image that their infrastructure machine names.
	// +required
	AtSpecImage int32 `json:"atSpecImage"`

	// skewed is how many have booted, or name in their infrastructure machine, an image older than minimumVersion.
	// +required
	Skewed int32 `json:"skewed"`

	// unknown is of how many it can't be told what they have booted from or, where a minimumVersion counts, in which version.
	// +required
	Unknown int32 `json:"unknown"`

	// foreign is how many have an infrastructure machine that something else than Cluster API controls. They are left alone, and
	// are in none of the counts but total.
	// +required
	Foreign int32 `json:"foreign"`
}

// BootImageRecord is an image that machines were given.
type BootImageRecord struct {
	// kind of the infrastructure machines.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// image as the infrastructure machines name it, without what may be a secret.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`

	// since is when it was seen first.
	// +required
	Since metav1.Time `json:"since"`

	// machines is how many machines name it now.
	// +required
	Machines int32 `json:"machines"`
}

// BootImagePolicyStatus is what the policy means now.
type BootImagePolicyStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// machines counts the Machines that the policy's selector selects.
	// +optional
	Machines *BootImageMachines `json:"machines,omitempty"`

	// history is the images that the infrastructure machines name, or have named last; the newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	History []BootImageRecord `json:"history,omitempty"`

	// rotation is how the templates stand that spec.rotation is for.
	// +optional
	Rotation *BootImageRotationStatus `json:"rotation,omitempty"`

	// conditions of the policy: Ready, BootImageSkew, ForeignMachines and RotationUpToDate.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BootImagePolicy says of which machines the boot image may change with no effect on those that run, and watches how old the
// images are that machines have booted from.
//
// For example:
//
//	apiVersion: capi-refit.dev/v1alpha1
//	kind: BootImagePolicy
//	metadata: {name: fleet, namespace: fleet}
//	spec:
//	  selection: {mode: All}
//	  minimumVersion: 1.35.0
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=bootimagepolicies,shortName=bip,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Mode",type="string",JSONPath=".spec.selection.mode"
// +kubebuilder:printcolumn:name="Machines",type="integer",JSONPath=".status.machines.total"
// +kubebuilder:printcolumn:name="Selected",type="integer",JSONPath=".status.machines.selected"
// +kubebuilder:printcolumn:name="Skewed",type="integer",JSONPath=".status.machines.skewed"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type BootImagePolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says of which machines the image may change.
	// +required
	Spec BootImagePolicySpec `json:"spec"`
	// status is what the policy means now.
	// +optional
	Status BootImagePolicyStatus `json:"status,omitzero"`
}

// BootImagePolicyList is a list of BootImagePolicies.
//
// +kubebuilder:object:root=true
type BootImagePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BootImagePolicy `json:"items"`
}
