package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RotationUpToDateCondition reports whether the machine templates of all targets have the golden image. It is there as long as the
// policy has a rotation.
const RotationUpToDateCondition = "RotationUpToDate"

const (
	// BootImagePolicyAnnotation on a machine template names the BootImagePolicy for which refit made it.
	BootImagePolicyAnnotation = "capi-refit.dev/boot-image-policy"
	// BootImageBaseAnnotation on a machine template that refit made names the template that it descends from.
	BootImageBaseAnnotation = "capi-refit.dev/boot-image-base"
	// BootImageRotatedAnnotation on a MachineDeployment or a KubeadmControlPlane says how often refit has brought it to an image.
	BootImageRotatedAnnotation = "capi-refit.dev/boot-image-rotated"
	// BootImageTemplateLabel is on the machine templates that refit made. Its value is empty.
	BootImageTemplateLabel = "capi-refit.dev/boot-image-template"
)

// BootImageRotation keeps the machine templates of MachineDeployments and KubeadmControlPlanes at a golden image, by making new
// templates. Only targets of the policy's namespace are brought to it, in the Clusters that the policy's selector selects.
type BootImageRotation struct {
	// configMap names the ConfigMap, in the policy's namespace, that says which image is golden: its key stream, and the keys
	// stream.v1.36 or stream.v1.36.1 for targets of that Kubernetes version.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ConfigMap string `json:"configMap"`

	// platform is the name in the ConfigMap under which the images are, such as aws or metal.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Platform string `json:"platform"`

	// architecture of the machines, such as amd64 or arm64. x86_64 and aarch64 are other names of these.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Architecture string `json:"architecture"`

	// region is the name in the ConfigMap of the region whose image counts. A platform's own image counts where the ConfigMap
	// does not name the region, and if this is empty.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`

	// format is the name in the ConfigMap of the format of the disk that counts, such as qcow2.gz or raw.xz, for platforms whose
	// image is a file to download. The image is then the place of that disk.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Format string `json:"format,omitempty"`

	// template says which machine templates are kept at the image, and in which fields they have it.
	// +required
	Template BootImageTemplate `json:"template"`

	// targets says whose templates are kept at the image.
	// +required
	Targets BootImageTargets `json:"targets"`

	// replacement says what becomes of targets of which Cluster API would replace machines for a new image: because the provider's
	// webhook does not let it change on machines that exist, because policies do not let refit claim it, or because the target's
	// rollout strategy makes a machine more. With Forbid they are left as they are, and the status says why. With Allow they are
	// brought to the image all the same.
	// +optional
	// +kubebuilder:default=Forbid
	Replacement Replacement `json:"replacement,omitempty"`
}

// BootImageTemplate names machine templates and the fields in which they have their image.
type BootImageTemplate struct {
	// group of the templates' API, such as infrastructure.cluster.x-k8s.io.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Group string `json:"group"`

	// kind of the templates, such as Metal3MachineTemplate. Targets whose template is of another kind are not the policy's.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][a-zA-Z0-9]*$`
	// +kubebuilder:validation:XValidation:rule="self.endsWith('Template') && self != 'Template'",message="kind is that of the templates, such as Metal3MachineTemplate"
	Kind string `json:"kind"`

	// fields of the machines that say from which image they boot.
	// +required
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.exists(f, !has(f.value) || f.value == 'Image')",message="one of the fields has the image as its value"
	Fields []BootImageField `json:"fields"`
}

// BootImageValue is what of a golden image a field holds.
// +kubebuilder:validation:Enum=Image;SHA256;Release
type BootImageValue string

// What of a golden image a field holds.
const (
	// ImageValue is the image itself: its name, its id or its place.
	ImageValue BootImageValue = "Image"
	// SHA256Value is the sha256 of the image, 64 hexadecimal digits.
	SHA256Value BootImageValue = "SHA256"
	// ReleaseValue is the release of the image, such as 42.20260705.3.0.
	ReleaseValue BootImageValue = "Release"
)

// BootImageField is a field that depends on the image.
type BootImageField struct {
	// path of the field below the machine's spec, which is spec.template.spec of its template: image.url, for instance. Items of
	// lists have no name: disks.image is the image of each disk that has one.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[a-zA-Z][a-zA-Z0-9_-]*(\.[a-zA-Z][a-zA-Z0-9_-]*)*$`
	Path string `json:"path"`

	// value is what the field holds: the Image, its SHA256, or its Release.
	// +optional
	// +kubebuilder:default=Image
	Value BootImageValue `json:"value,omitempty"`
}

// BootImageTargets selects what is kept at a golden image. What is not there selects nothing, and what is empty selects all.
// +kubebuilder:validation:XValidation:rule="has(self.machineDeployments) || has(self.controlPlanes)",message="at least one of machineDeployments and controlPlanes is needed"
type BootImageTargets struct {
	// machineDeployments selects MachineDeployments by their labels.
	// +optional
	MachineDeployments *metav1.LabelSelector `json:"machineDeployments,omitempty"`

	// controlPlanes selects KubeadmControlPlanes by their labels.
	// +optional
	ControlPlanes *metav1.LabelSelector `json:"controlPlanes,omitempty"`
}

// BootImageTargetState is how far a target is.
// +kubebuilder:validation:Enum=UpToDate;Rotated;Pending;Refused;Stopped;Foreign;Paused
type BootImageTargetState string

// How far a target is.
const (
	// TargetUpToDate: its template has the golden image, and refit did not make it.
	TargetUpToDate BootImageTargetState = "UpToDate"
	// TargetRotated: its template has the golden image, and refit made it.
	TargetRotated BootImageTargetState = "Rotated"
	// TargetPending: it is about to be brought to the golden image.
	TargetPending BootImageTargetState = "Pending"
	// TargetRefused: it can't be brought to the golden image, and the message says why. Nothing was committed.
	TargetRefused BootImageTargetState = "Refused"
	// TargetStopped: somebody has set it back again and again. It is left alone until the policy or the ConfigMap changes.
	TargetStopped BootImageTargetState = "Stopped"
	// TargetForeign: it, or its template, is managed by somebody else, and left alone.
	TargetForeign BootImageTargetState = "Foreign"
	// TargetPaused: it, or its Cluster, is paused.
	TargetPaused BootImageTargetState = "Paused"
)

// BootImageTarget is a MachineDeployment or a KubeadmControlPlane that the policy keeps at a golden image.
type BootImageTarget struct {
	// kind is MachineDeployment or KubeadmControlPlane.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name of the target.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// state of the target.
	// +required
	State BootImageTargetState `json:"state"`

	// image that is golden for the target.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// template is the machine template that the target refers to.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Template string `json:"template,omitempty"`

	// times is how often the target was brought to this image since the policy or the ConfigMap has changed.
	// +optional
	Times int32 `json:"times,omitempty"`

	// message says why the target does not have the golden image.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// BootImageRotationStatus is how far a rotation is.
type BootImageRotationStatus struct {
	// observedGeneration is the generation of the spec that this is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// inputs is a digest of the policy and the ConfigMap that this is about. With another one, targets that were stopped are
	// tried again.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Inputs string `json:"inputs,omitempty"`

	// since is when these inputs were seen first. Nothing is brought to an image before all replicas of refit can be expected to
	// know them.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// selected is how many targets there are.
	// +optional
	Selected *int32 `json:"selected,omitempty"`

	// upToDate is how many of them have the golden image in their templates.
	// +optional
	UpToDate *int32 `json:"upToDate,omitempty"`

	// targets are the first 100 of them, those first that do not have the image.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Targets []BootImageTarget `json:"targets,omitempty"`
}
