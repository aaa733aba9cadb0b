package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of the Ready condition of a NodeAccess, which reports whether refit can log in to the nodes of the Machines that it selects.
const (
	// NodeAccessReached: the last login to each of the nodes succeeded.
	NodeAccessReached = "Reached"
	// NodeAccessUnreached: the last login to one of the nodes, or to more, failed.
	NodeAccessUnreached = "Unreached"
	// NodeAccessNotTried: no login has failed, and one of the nodes, or more, was not tried yet, or too long ago.
	NodeAccessNotTried = "NotTried"
	// NodeAccessInvalid: its selector can't be read.
	NodeAccessInvalid = "Invalid"
	// NodeAccessNoMachines: it selects no Machine that has a node.
	NodeAccessNoMachines = "NoMachines"
)

// MaxUnreachedMachines is how many Machines a status lists whose nodes can't be reached.
const MaxUnreachedMachines = 20

// NodeAccessStatus is whether refit can log in to the nodes of the Machines that a NodeAccess selects. Machines without a node, and those that
// are being deleted, don't count.
type NodeAccessStatus struct {
	// observedGeneration is the generation that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// machines counts the selected Machines that have a node.
	// +optional
	Machines *int32 `json:"machines,omitempty"`

	// reachable counts those of them to whose node the last login succeeded.
	// +optional
	Reachable *int32 `json:"reachable,omitempty"`

	// unreachable counts those of them to whose node the last login failed. The others were not tried yet, or too long ago.
	// +optional
	Unreachable *int32 `json:"unreachable,omitempty"`

	// unreached are the Machines to whose node the last login failed, by name, 20 of them at most.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Unreached []UnreachedMachine `json:"unreached,omitempty"`

	// probedAt is when a node was last logged in to, or tried, as of when the status was written.
	// +optional
	ProbedAt *metav1.Time `json:"probedAt,omitempty"`

	// conditions of the access: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// UnreachedMachine is a Machine whose node can't be logged in to.
type UnreachedMachine struct {
	// name of the Machine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// reason is one of those for which a MachineUpdate waits: NodeAccess, Unreachable, HostKey, Agent.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`

	// message says what was met, and what to do. It contains no secrets.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// since is when the first of the logins failed that have failed since.
	// +required
	Since metav1.Time `json:"since"`
}
