package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-refit/refit/schedule"
)

// PendingCause is what becomes of a Machine when its change starts.
// +kubebuilder:validation:Enum=InPlace;Replacement;Upgrade;Unknown
type PendingCause string

// What becomes of a Machine.
const (
	// PendingInPlace: the Machine is updated in place.
	PendingInPlace PendingCause = "InPlace"
	// PendingReplacement: the change can't be made in place, and Cluster API replaces the Machine.
	PendingReplacement PendingCause = "Replacement"
	// PendingUpgrade: the cluster's topology wants another version of Kubernetes, and Cluster API has not asked for it here yet.
	PendingUpgrade PendingCause = "Upgrade"
	// PendingUnknown: the change is made in place or the Machine is replaced, and refit can't tell which.
	PendingUnknown PendingCause = "Unknown"
)

// MaxPendingMachines is how many Machines a PendingChange lists.
const MaxPendingMachines = 100

// Why a change waits where no policy holds it back. Others are the reasons of policies and of MachineUpdates.
const (
	// PendingClusterPaused: the Cluster is paused.
	PendingClusterPaused = "ClusterPaused"
	// PendingOwnerPaused: the MachineDeployment or the control plane is paused.
	PendingOwnerPaused = "OwnerPaused"
	// PendingOnDelete: the MachineDeployment has the strategy OnDelete, so that somebody has to delete the Machine.
	PendingOnDelete = "OnDelete"
	// PendingForbidden: a policy forbids the replacement of the Machine.
	PendingForbidden = "ReplacementForbidden"
	// PendingFailed: the update has failed, and waits for somebody's decision.
	PendingFailed = "UpdateFailed"
	// PendingControlPlane: the control plane comes first, and nobody knows when.
	PendingControlPlane = "AfterControlPlane"
	// PendingDeferred: the Cluster's topology has the upgrade of the MachineDeployment wait.
	PendingDeferred = "UpgradeDeferred"
	// PendingUnreadable: what policies or the owner say can't be read.
	PendingUnreadable = "Unreadable"
)

// PendingOwner names the object that wants a change.
type PendingOwner struct {
	// kind of the object, such as MachineDeployment.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// PendingChangeSpec says whose changes are shown.
type PendingChangeSpec struct {
	// cluster is the name of the Cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster"`

	// owner wants the changes: a MachineDeployment, a control plane, or the Cluster, which stands for all of its Machines.
	// +required
	Owner PendingOwner `json:"owner"`

	// role of the owner's Machines. A Cluster has none.
	// +optional
	Role Role `json:"role,omitempty"`
}

// PendingMachine is a Machine that a change will touch.
type PendingMachine struct {
	// name of the Machine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// cause is what becomes of it.
	// +required
	Cause PendingCause `json:"cause"`

	// reason is why it waits: Open if all policies let it start, else that of the policies, of its MachineUpdate, or what else holds it back.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// earliestStart is when all policies let it start together, budgets aside. None: not before something else happens.
	// +optional
	EarliestStart *metav1.Time `json:"earliestStart,omitempty"`
}

// PendingCount is how many Machines there are of a cause.
type PendingCount struct {
	// cause is what becomes of them.
	// +required
	Cause PendingCause `json:"cause"`

	// machines is how many.
	// +required
	// +kubebuilder:validation:Minimum=1
	Machines int32 `json:"machines"`
}

// PendingPolicy is what of the changes is under a policy and has no MachineUpdate, since Cluster API has not committed it.
type PendingPolicy struct {
	// name of the ChangeManagementPolicy, or kind and name of a policy of the platform.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=300
	Name string `json:"name"`

	// machines is how many Machines the policy selects.
	// +required
	// +kubebuilder:validation:Minimum=1
	Machines int32 `json:"machines"`

	// held is how many of them may not start now.
	// +required
	// +kubebuilder:validation:Minimum=0
	Held int32 `json:"held"`

	// classes are what those changes are and take that may not start, where that has a say under the policy.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Classes []PendingClass `json:"classes,omitempty"`
}

// MaxPendingClasses is how many classes are named.
const MaxPendingClasses = 32

// PendingClass is what a change is, and the worst that it takes on the node.
type PendingClass struct {
	// kinds are what it is of. None: that is not known.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	Kinds []schedule.Kind `json:"kinds,omitempty"`

	// disruption is the worst that it takes. Empty: that is not known.
	// +optional
	Disruption schedule.Disruption `json:"disruption,omitempty"`
}

// MaxPendingClaims is how many claims a PendingChange lists.
const MaxPendingClaims = 50

// PendingClaim is a field that a registered updater makes in place.
type PendingClaim struct {
	// object is which one of a machine has the field: machine, infrastructureMachine or bootstrapConfig.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Object string `json:"object"`

	// field is its path in the object, such as spec.ntp.servers.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Field string `json:"field"`

	// registration is the name of the UpdaterRegistration.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Registration string `json:"registration"`
}

// ChangePendingCondition reports whether a change waits. Its reason is the cause.
const ChangePendingCondition = "ChangePending"

// PendingChangeStatus is what waits, and until when.
type PendingChangeStatus struct {
	// machines is how many Machines a change will touch that has not started on them.
	// +optional
	Machines int32 `json:"machines,omitempty"`

	// underWay is on how many more it has started, and not ended.
	// +optional
	UnderWay int32 `json:"underWay,omitempty"`

	// causes count the Machines by what becomes of them.
	// +optional
	// +listType=map
	// +listMapKey=cause
	// +kubebuilder:validation:MaxItems=8
	Causes []PendingCount `json:"causes,omitempty"`

	// earliestStart is when the first of the Machines may start.
	// +optional
	EarliestStart *metav1.Time `json:"earliestStart,omitempty"`

	// lastDone is when the last of the Machines is expected to be done: an estimate, by windows, budgets, and how many may be out at once. None:
	// of some it is not known when they start.
	// +optional
	LastDone *metav1.Time `json:"lastDone,omitempty"`

	// policies are those that select Machines whose change Cluster API has not committed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Policies []PendingPolicy `json:"policies,omitempty"`

	// claims are the fields of the changes that registered updaters make in place, as they have said last, 50 of them at most. Other fields are made by refit's own.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Claims []PendingClaim `json:"claims,omitempty"`

	// list has the Machines, those that may start first before the others.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	List []PendingMachine `json:"list,omitempty"`

	// more is how many Machines are not in the list.
	// +optional
	More int32 `json:"more,omitempty"`

	// conditions of the change: ChangePending.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PendingChange shows what waits at a MachineDeployment, a control plane or a Cluster: which Machines a change will touch, what becomes of them, when
// they may start, and when the last would be done. refit makes it, keeps it as things are, and deletes it when nothing waits any more. It goes with
// its owner, and is not moved.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=pendingchanges,scope=Namespaced,categories=cluster-api
// +kubebuilder:printcolumn:name="Kind",type="string",JSONPath=".spec.owner.kind"
// +kubebuilder:printcolumn:name="Owner",type="string",JSONPath=".spec.owner.name"
// +kubebuilder:printcolumn:name="Cause",type="string",JSONPath=".status.conditions[?(@.type=='ChangePending')].reason"
// +kubebuilder:printcolumn:name="Machines",type="integer",JSONPath=".status.machines"
// +kubebuilder:printcolumn:name="Earliest",type="string",JSONPath=".status.earliestStart"
// +kubebuilder:printcolumn:name="Last done",type="string",JSONPath=".status.lastDone"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='ChangePending')].message"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type PendingChange struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says whose changes are shown.
	// +required
	Spec PendingChangeSpec `json:"spec"`
	// status is what waits.
	// +optional
	Status PendingChangeStatus `json:"status,omitzero"`
}

// PendingChangeList is a list of PendingChanges.
//
// +kubebuilder:object:root=true
type PendingChangeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PendingChange `json:"items"`
}
