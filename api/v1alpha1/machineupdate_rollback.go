package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RollbackAnnotation on a MachineUpdate asks refit to write into the Machine's objects what its owner wants now. Each new value is
// acted upon once.
const RollbackAnnotation = "capi-refit.dev/rollback"

// RollbackState is how far a rollback has come.
// +kubebuilder:validation:Enum=Pending;Writing;Written;Refused
type RollbackState string

// The states of a rollback.
const (
	// RollbackPending: it can't be done now, and is tried again. Nothing has been written.
	RollbackPending RollbackState = "Pending"
	// RollbackWriting: some of the objects may have been written.
	RollbackWriting RollbackState = "Writing"
	// RollbackWritten: all have been, and the update goes on with what they say.
	RollbackWritten RollbackState = "Written"
	// RollbackRefused: it can't be done, or there is nothing to write.
	RollbackRefused RollbackState = "Refused"
)

// RollbackStatus is how a Machine's objects are brought to what its owner wants.
type RollbackStatus struct {
	// request is the value of the rollback annotation that was acted upon last.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Request string `json:"request"`

	// state is how far it has come.
	// +required
	State RollbackState `json:"state"`

	// owner is whose template that is.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Owner string `json:"owner,omitempty"`

	// message says what was done, or why nothing was, or not yet.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`

	// warning is what a person has to look after, since neither Cluster API nor refit does.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Warning string `json:"warning,omitempty"`

	// startedAt is when it was acted upon.
	// +required
	StartedAt metav1.Time `json:"startedAt"`

	// finishedAt is when it was written or refused.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}

// Ended reports whether a rollback was written or refused.
func (s RollbackState) Ended() bool { return s == RollbackWritten || s == RollbackRefused }

// RollbackRequest returns the rollback that is asked for, as it is recorded when it is acted upon; "" if none is.
func (mu *MachineUpdate) RollbackRequest() string {
	return Observed(mu.Annotations[RollbackAnnotation])
}
