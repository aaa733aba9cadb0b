package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-refit/refit/schedule"
)

// Role is what a Machine is in its cluster.
// +kubebuilder:validation:Enum=ControlPlane;Worker
type Role string

// The roles.
const (
	ControlPlaneRole Role = "ControlPlane"
	WorkerRole       Role = "Worker"
)

// WhenClosed is what becomes of a change while the policy is closed.
// +kubebuilder:validation:Enum=Hold;Refuse
type WhenClosed string

// What becomes of a change while the policy is closed.
const (
	// HoldWhenClosed: Cluster API commits the change, and the update of the machine waits.
	HoldWhenClosed WhenClosed = "Hold"
	// RefuseWhenClosed: Cluster API is told to ask again, so that nothing is committed.
	RefuseWhenClosed WhenClosed = "Refuse"
)

// Replacement is what becomes of a change that can't be made in place.
// +kubebuilder:validation:Enum=Allow;Forbid
type Replacement string

// What becomes of a change that can't be made in place.
const (
	// AllowReplacement: Cluster API replaces the machine, when the policy is open.
	AllowReplacement Replacement = "Allow"
	// ForbidReplacement: the machine stays, and the change is not made.
	ForbidReplacement Replacement = "Forbid"
)

// Guard is what becomes of an edit by which machines would be replaced that a policy protects.
// +kubebuilder:validation:Enum=Warn;Refuse;Strict
type Guard string

// What becomes of an edit by which protected machines would be replaced.
const (
	// WarnGuard: it is stored, and who makes it is warned.
	WarnGuard Guard = "Warn"
	// RefuseGuard: it is refused if replacement is Forbid, or if whenClosed is Refuse and the policy is closed.
	RefuseGuard Guard = "Refuse"
	// StrictGuard: so is one of which Cluster API asks nobody before it replaces machines, or of which it can't be told what it does.
	StrictGuard Guard = "Strict"
)

// Held is which changes a policy holds back.
// +kubebuilder:validation:Enum=Material;All
type Held string

// Which changes a policy holds back.
const (
	// HoldMaterial: those that disturb a node. To tell, refit looks at the node.
	HoldMaterial Held = "Material"
	// HoldAll: all of them. While the policy is closed nothing connects to the node.
	HoldAll Held = "All"
)

// ChangeManagementPolicySpec says when the selected Machines may be disturbed.
type ChangeManagementPolicySpec struct {
	// selector says which Machines of the namespace the policy is for. Empty: all. All policies that select a Machine must
	// permit a change.
	// +optional
	Selector MachinesSelector `json:"selector,omitzero"`

	schedule.Policy `json:",inline"`

	// budget limits how many updates start, on top of what Cluster API limits by itself.
	// +optional
	Budget Budget `json:"budget,omitzero"`

	// gates are asked before each start, and while a node soaks: a query of Prometheus, or an expression over objects. While one does not hold,
	// or is not known to, nothing starts.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Gates []HealthGate `json:"gates,omitempty"`

	// jitter spreads the starts of a window's updates over this long, such as 10m. An update that would then no longer fit
	// into the window starts earlier.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(h|m|s))+$`
	Jitter string `json:"jitter,omitempty"`

	// whenClosed says what becomes of a change while the policy is closed. With Hold, Cluster API commits it, and the update
	// waits; one Machine of a MachineDeployment then counts as unavailable. With Refuse nothing is committed, but the
	// MachineDeployment does not scale either until the policy opens.
	// +optional
	// +kubebuilder:default=Hold
	WhenClosed WhenClosed `json:"whenClosed,omitempty"`

	// replacement says what becomes of a change that can't be made in place. With Allow, Cluster API replaces the machine when
	// the policy is open. With Forbid the machine stays; what can't be made in place is named in the messages.
	// +optional
	// +kubebuilder:default=Allow
	Replacement Replacement `json:"replacement,omitempty"`

	// guard says what becomes of an edit of a Cluster, a KubeadmControlPlane or a MachineDeployment by which machines would be replaced, where refit's
	// guard is installed. Refuse refuses it if replacement is Forbid, or if the policy is closed and whenClosed is Refuse; of all else it warns. Strict
	// refuses it also if the policy is closed, and with it what Cluster API asks nobody about, and what can't be told. Warn refuses nothing.
	// +optional
	// +kubebuilder:default=Refuse
	Guard Guard `json:"guard,omitempty"`

	// hold says which changes wait while the policy is closed: those that disturb a node (Material), or All. To tell a change
	// that does not, refit connects to the node and has it plan; with All it does not connect.
	// +optional
	// +kubebuilder:default=Material
	Hold Held `json:"hold,omitempty"`

	// deadline is until when a change may wait for the policy. By default it waits for as long as that takes.
	// +optional
	Deadline *Deadline `json:"deadline,omitempty"`

	// maxOverride is how far ahead the annotation capi-refit.dev/permissive-until may lie, such as 48h.
	// +optional
	// +kubebuilder:default="48h"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(h|m|s))+$`
	MaxOverride string `json:"maxOverride,omitempty"`

	// deletionGrace is for how long the policy goes on to count when it is deleted, such as 10m, so that what it holds back does not start because
	// somebody has deleted it by mistake. One that has the same selector takes over at once. 0s: it is gone at once.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(h|m|s))+$`
	DeletionGrace string `json:"deletionGrace,omitempty"`
}

// MachinesSelector selects Machines. What is empty selects all.
type MachinesSelector struct {
	// clusters selects by the labels of the Cluster.
	// +optional
	Clusters metav1.LabelSelector `json:"clusters,omitzero"`

	// roles selects by what the Machine is in its cluster.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	Roles []Role `json:"roles,omitempty"`

	// machines selects by the labels of the Machine.
	// +optional
	Machines metav1.LabelSelector `json:"machines,omitzero"`
}

// Budget limits how many updates start. What is 0 or empty does not limit.
type Budget struct {
	// maxConcurrent is how many updates of selected Machines may be under way at once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxConcurrent int32 `json:"maxConcurrent,omitempty"`

	// maxStartsPerWindow is how many updates may start within one window.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxStartsPerWindow int32 `json:"maxStartsPerWindow,omitempty"`

	// minSpacing is how long after an update has started the next one may, such as 2m.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(h|m|s))+$`
	MinSpacing string `json:"minSpacing,omitempty"`

	// stopAfterFailures is how many updates of selected Machines may have failed. With as many, none starts until somebody has
	// one of them tried again, or its desired specs change. One during whose soak a health gate did not hold counts until somebody has looked.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	StopAfterFailures int32 `json:"stopAfterFailures,omitempty"`
}

// Window is a time during which changes may start: from start, until just before end.
type Window struct {
	// start of the window. None: it has been open for longer than 1000 days.
	// +optional
	Start *metav1.Time `json:"start,omitempty"`
	// end of the window. None: it stays open for longer than 1000 days.
	// +optional
	End *metav1.Time `json:"end,omitempty"`
}

// Conditions of a ChangeManagementPolicy.
const (
	// ReadyCondition reports whether the policy can be read. One that can't be read is closed.
	ReadyCondition = "Ready"
	// ChangesPendingCondition reports whether changes of selected Machines wait for a policy.
	ChangesPendingCondition = "ChangesPending"
	// ChangesRestrictedCondition reports whether the policy is closed now.
	ChangesRestrictedCondition = "ChangesRestricted"
	// ChangesPausedCondition reports whether the policy is closed until somebody changes it.
	ChangesPausedCondition = "ChangesPaused"
	// DeadlineNearCondition reports, of a policy with a deadline, whether one of an update that waits is near or has passed. A MachineUpdate has it, too.
	DeadlineNearCondition = "DeadlineNear"
)

// ChangeManagementPolicyStatus is what the policy means now.
type ChangeManagementPolicyStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// open reports whether the policy lets changes start now, budgets aside.
	// +optional
	Open *bool `json:"open,omitempty"`

	// nextChange is when open changes by the schedule. None: not within 1000 days.
	// +optional
	NextChange *metav1.Time `json:"nextChange,omitempty"`

	// current is the window that is open.
	// +optional
	Current *Window `json:"current,omitempty"`

	// next is the next window.
	// +optional
	Next *Window `json:"next,omitempty"`

	// recent are the last windows, the latest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	Recent []Window `json:"recent,omitempty"`

	// selectedMachines is how many Machines the policy selects.
	// +optional
	SelectedMachines *int32 `json:"selectedMachines,omitempty"`

	// pendingMachines is how many of them have a change that waits for a policy: an update, or a replacement or an upgrade that Cluster API has not
	// committed.
	// +optional
	PendingMachines *int32 `json:"pendingMachines,omitempty"`

	// durations are what updates under the policy have taken, by role and disruption. Estimates are made of them.
	// +optional
	// +listType=map
	// +listMapKey=role
	// +listMapKey=disruption
	// +kubebuilder:validation:MaxItems=64
	Durations []MeasuredDuration `json:"durations,omitempty"`

	// ledger is what counts against the policy's budget. It outlives the Machines.
	// +optional
	Ledger *Ledger `json:"ledger,omitempty"`

	// gates are what the policy's health gates have answered, those that don't hold first. Those that nobody has asked for lately are left out.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Gates []GateStatus `json:"gates,omitempty"`

	// conditions of the policy: Ready, ChangesPending, ChangesRestricted, ChangesPaused, DeadlineNear.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Ledger is what counts against a budget, whether or not the Machines are still there.
type Ledger struct {
	// starts of updates that count against maxStartsPerWindow and minSpacing, the latest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Starts []LedgerEntry `json:"starts,omitempty"`

	// failures are updates that have failed and count against stopAfterFailures, the latest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Failures []LedgerEntry `json:"failures,omitempty"`

	// gateFailures are updates during whose soak a health gate did not hold. They count against stopAfterFailures, too, the latest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	GateFailures []GateFailure `json:"gateFailures,omitempty"`
}

// LedgerEntry is something that an update did.
type LedgerEntry struct {
	// machine whose update it was.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine"`

	// update is the UID of the MachineUpdate.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Update string `json:"update"`

	// at is when it was.
	// +required
	At metav1.Time `json:"at"`
}

// MeasuredDuration is what updates of a kind have taken.
type MeasuredDuration struct {
	// role of the Machines.
	// +required
	Role Role `json:"role"`

	// disruption is the worst action of the updates, such as Restart.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Disruption string `json:"disruption"`

	// seconds that an update is expected to take: what 95 of 100 took at most. None: too few were measured.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Seconds *int64 `json:"seconds,omitempty"`

	// samples are the latest updates, the latest first. None is older than 90 days.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	Samples []DurationSample `json:"samples,omitempty"`
}

// DurationSample is what one update has taken.
type DurationSample struct {
	// machine whose update it was.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine"`

	// finishedAt is when it had succeeded.
	// +required
	FinishedAt metav1.Time `json:"finishedAt"`

	// seconds from its start to its success.
	// +required
	// +kubebuilder:validation:Minimum=1
	Seconds int64 `json:"seconds"`
}

// ChangeManagementPolicy says when the Machines that it selects may be disturbed.
//
// For example:
//
//	apiVersion: capi-refit.dev/v1alpha1
//	kind: ChangeManagementPolicy
//	metadata: {name: first-saturday, namespace: fleet}
//	spec:
//	  strategy: MaintenanceSchedule
//	  expectedDuration: 20m
//	  maintenanceSchedule:
//	    timeZone: Europe/Berlin
//	    permit:
//	    - {recurrence: FREQ=MONTHLY;BYDAY=1SA, startTime: "20:00", duration: 8h}
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=changemanagementpolicies,shortName=cmp,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Strategy",type="string",JSONPath=".spec.strategy"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Open",type="boolean",JSONPath=".status.open"
// +kubebuilder:printcolumn:name="Next change",type="string",JSONPath=".status.nextChange"
// +kubebuilder:printcolumn:name="Machines",type="integer",JSONPath=".status.selectedMachines"
// +kubebuilder:printcolumn:name="Pending",type="integer",JSONPath=".status.pendingMachines"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ChangeManagementPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says when.
	// +required
	Spec ChangeManagementPolicySpec `json:"spec"`
	// status is what the policy means now.
	// +optional
	Status ChangeManagementPolicyStatus `json:"status,omitzero"`
}

// ChangeManagementPolicyList is a list of ChangeManagementPolicies.
//
// +kubebuilder:object:root=true
type ChangeManagementPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ChangeManagementPolicy `json:"items"`
}
