package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceOverrides is what the overrides of objects in namespaces are to a policy of the platform.
// +kubebuilder:validation:Enum=Forbid;Allow
type NamespaceOverrides string

// What the overrides of objects in namespaces are to a policy of the platform.
const (
	// ForbidOverrides: they do not open it. Annotations of the policy itself do.
	ForbidOverrides NamespaceOverrides = "Forbid"
	// AllowOverrides: they open it as they open the policies of their namespace.
	AllowOverrides NamespaceOverrides = "Allow"
)

// ClusterChangeManagementPolicySpec says when the selected Machines of the selected namespaces may be disturbed.
//
// +kubebuilder:validation:XValidation:rule="self.strategy != 'Manual' || (has(self.overrides) && self.overrides == 'Allow')",message="strategy Manual needs overrides: Allow: changes are permitted at objects of namespaces, which do not open the policy otherwise"
// +kubebuilder:validation:XValidation:rule="!has(self.gates) || size(self.gates) == 0",message="health gates take a ChangeManagementPolicy in a namespace, since what they ask, and with which Secrets, is there"
// +kubebuilder:validation:XValidation:rule="!has(self.budget) || (!has(self.budget.maxStartsPerWindow) || self.budget.maxStartsPerWindow == 0) && !has(self.budget.minSpacing) && (!has(self.budget.stopAfterFailures) || self.budget.stopAfterFailures == 0)",message="of budget only maxConcurrent can be set here, which each namespace has for itself; the others take a ChangeManagementPolicy in the namespace"
type ClusterChangeManagementPolicySpec struct {
	// namespaceSelector says by the labels of Namespaces for which of them the policy is. Empty: for all.
	// +optional
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector,omitzero"`

	// overrides reports whether overrides of objects in namespaces (permissive-until, bypass-change-management, permits) open the policy. With
	// Forbid only annotations of the policy itself do.
	// +optional
	// +kubebuilder:default=Forbid
	Overrides NamespaceOverrides `json:"overrides,omitempty"`

	ChangeManagementPolicySpec `json:",inline"`
}

// ClusterChangeManagementPolicy is a ChangeManagementPolicy of the platform: it says for the Machines of many namespaces when they may be
// disturbed. The policies of a namespace bound changes further, and permit nothing that it does not.
//
// For example:
//
//	apiVersion: capi-refit.dev/v1alpha1
//	kind: ClusterChangeManagementPolicy
//	metadata: {name: production}
//	spec:
//	  namespaceSelector:
//	    matchLabels: {tier: production}
//	  strategy: MaintenanceSchedule
//	  expectedDuration: 20m
//	  maintenanceSchedule:
//	    timeZone: Europe/Berlin
//	    permit:
//	    - {recurrence: FREQ=DAILY, startTime: "20:00", duration: 10h}
//	  budget: {maxConcurrent: 10}
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clusterchangemanagementpolicies,shortName=ccmp,scope=Cluster,categories=cluster-api
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Strategy",type="string",JSONPath=".spec.strategy"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Open",type="boolean",JSONPath=".status.open"
// +kubebuilder:printcolumn:name="Next change",type="string",JSONPath=".status.nextChange"
// +kubebuilder:printcolumn:name="Machines",type="integer",JSONPath=".status.selectedMachines"
// +kubebuilder:printcolumn:name="Pending",type="integer",JSONPath=".status.pendingMachines"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ClusterChangeManagementPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says when, and in which namespaces.
	// +required
	Spec ClusterChangeManagementPolicySpec `json:"spec"`
	// status is what the policy means now. It has no durations and no ledger: those are of a namespace.
	// +optional
	Status ChangeManagementPolicyStatus `json:"status,omitzero"`
}

// ClusterChangeManagementPolicyList is a list of ClusterChangeManagementPolicies.
//
// +kubebuilder:object:root=true
type ClusterChangeManagementPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterChangeManagementPolicy `json:"items"`
}
