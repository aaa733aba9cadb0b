package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeReference is a Node of the workload cluster.
type NodeReference struct {
	// name of the Node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid of the Node.
	// +required
	UID types.UID `json:"uid"`
}

// Slot is one of the nodes that may be disturbed at once in a cluster.
type Slot struct {
	// takenAt is since when.
	// +required
	TakenAt metav1.Time `json:"takenAt"`
}

// DrainStatus is how the drain of a node stands.
type DrainStatus struct {
	// startedAt is when the drain began. Its timeout counts from here.
	// +required
	StartedAt metav1.Time `json:"startedAt"`

	// finishedAt is when the last pod had left, and its volumes were detached.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`

	// cordoned reports that refit cordoned the node, so that refit uncordons it.
	// +optional
	Cordoned bool `json:"cordoned,omitempty"`

	// podsLeft counts the pods that are still to leave.
	// +optional
	PodsLeft int32 `json:"podsLeft,omitempty"`

	// detachingSince is when the last pod had left and volumes were still attached. nodeVolumeDetachTimeoutSeconds counts from here.
	// +optional
	DetachingSince *metav1.Time `json:"detachingSince,omitempty"`

	// volumesLeft counts the volumes that are still attached when the last pod has left.
	// +optional
	VolumesLeft int32 `json:"volumesLeft,omitempty"`

	// blocked says which pods can't leave now and why, ten at most.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=1024
	Blocked []string `json:"blocked,omitempty"`
}

// NotMaterial is the reason of an Admission of what does not disturb the node.
const NotMaterial = "NotMaterial"

// Admission is what let the work on a node start.
type Admission struct {
	// admittedAt is when.
	// +required
	AdmittedAt metav1.Time `json:"admittedAt"`

	// reason in one word: Open, Overridden, DeadlinePassed, or NotMaterial.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`

	// message says why.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`

	// role of the Machine.
	// +optional
	Role Role `json:"role,omitempty"`

	// policies are those that selected the Machine.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=253
	Policies []string `json:"policies,omitempty"`

	// window in which it started, where there is one.
	// +optional
	Window *Window `json:"window,omitempty"`
}

// Change is a change that was made on the node.
type Change struct {
	// kind of what was changed, such as File, as the node names it.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Kind string `json:"kind"`

	// name of what was changed: the path of a file, the name of a unit or user. None: a node has one of the kind.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Name string `json:"name,omitempty"`

	// operation is Write, Remove or Restore.
	// +required
	// +kubebuilder:validation:MaxLength=32
	Operation string `json:"operation"`

	// conflict reports that somebody on the node had changed it, too. A copy of their file is kept on the node.
	// +optional
	Conflict bool `json:"conflict,omitempty"`
}

// UpdaterRun is how far a registered updater is with an update.
type UpdaterRun struct {
	// name of its UpdaterRegistration.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// done reports that it has said that its part is done. It is not called again for these specs.
	// +optional
	Done bool `json:"done,omitempty"`

	// askAgainAt is when it is asked again.
	// +optional
	AskAgainAt *metav1.Time `json:"askAgainAt,omitempty"`

	// message is what it has said last, or why it could not be asked.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}
