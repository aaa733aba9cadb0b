package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CheckDriftAnnotation on a MachineUpdate asks for a comparison of the node with what was applied to it. Each new value is acted
// upon once.
const CheckDriftAnnotation = "capi-refit.dev/check-drift"

// DriftedCondition reports whether the node no longer shows what was applied to it last, as of the last comparison. It is there once
// the node was compared for the first time.
const DriftedCondition = "Drifted"

// Reasons of the Drifted condition. It is Unknown with the reasons of a waiting update, too: Unreachable, HostKey, NodeAccess,
// Agent, Audit, Blocked, Paused, Window.
const (
	// DriftNone: the node shows what was applied.
	DriftNone = "AsApplied"
	// DriftFound: it does not.
	DriftFound = "Changed"
	// DriftOtherRecord: the node has a record of other specs than were applied last, as after a restore from a backup.
	DriftOtherRecord = "OtherRecord"
	// DriftNoRecord: the node has no record, so that nothing can be told.
	DriftNoRecord = "NoRecord"
	// DriftUnderWay: the node is being changed.
	DriftUnderWay = "UnderWay"
	// DriftNotCompared: not all on the node could be read.
	DriftNotCompared = "NotCompared"
)

// MaxDriftedResources is how many resources a MachineUpdate lists that have drifted.
const MaxDriftedResources = 100

// DriftStatus is how the node compares with what was applied to it last.
type DriftStatus struct {
	// checkedAt is when it was looked for drift last, whether or not the node could be compared.
	// +optional
	CheckedAt *metav1.Time `json:"checkedAt,omitempty"`

	// comparedAt is when the node was compared last. The resources are as of then.
	// +optional
	ComparedAt *metav1.Time `json:"comparedAt,omitempty"`

	// observedCheck is the value of the check-drift annotation that was acted upon last.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ObservedCheck string `json:"observedCheck,omitempty"`

	// resources are those that have drifted, the first hundred of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Resources []DriftedResource `json:"resources,omitempty"`

	// total counts all that have drifted.
	// +optional
	Total int32 `json:"total,omitempty"`

	// repairs counts how often the node was brought back without having been found as it was applied since. After three times refit
	// stops: something on the node changes it.
	// +optional
	Repairs int32 `json:"repairs,omitempty"`
}

// DriftedResource is something on the node that is no longer as it was applied.
type DriftedResource struct {
	// kind of it.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Kind string `json:"kind"`

	// name of it: the path of a file, the name of a unit or user. None: a node has one of the kind.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Name string `json:"name,omitempty"`

	// what differs: of a file content, mode, owner or missing. It contains no values.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=512
	What []string `json:"what,omitempty"`
}

// RepairStatus is a repair of a node that has drifted.
type RepairStatus struct {
	// startedAt is when the drift was found.
	// +required
	StartedAt metav1.Time `json:"startedAt"`

	// token is the highest of the work on the node before. A run with a higher one is of the repair.
	// +optional
	Token int64 `json:"token,omitempty"`
}

// ChangeID identifies what is to be done on the node, for a bypass of change management: the digest of the specs, and of a repair
// that with the time at which the drift was found. What was let start once does not let repairs of it start for ever.
func (mu *MachineUpdate) ChangeID() string {
	if r := mu.Status.Repair; r != nil && mu.Status.ObservedDigest == mu.Spec.Digest {
		return fmt.Sprintf("%s-repair-%d", mu.Spec.Digest, r.StartedAt.Unix())
	}
	return mu.Spec.Digest
}
