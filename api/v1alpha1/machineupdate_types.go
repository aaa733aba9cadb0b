package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Phase is how far the update of a machine has come.
// +kubebuilder:validation:Enum=Pending;Waiting;Staging;Draining;Applying;Verifying;Succeeded;Failed
type Phase string

// The phases, in order. Each can be entered again.
const (
	// PhasePending: asked for, not begun.
	PhasePending Phase = "Pending"
	// PhaseWaiting: something must happen first. The status' reason says what.
	PhaseWaiting Phase = "Waiting"
	// PhaseStaging: the node is reached, the agent brought there, and the work planned. Nothing is changed.
	PhaseStaging Phase = "Staging"
	// PhaseDraining: pods leave the node.
	PhaseDraining Phase = "Draining"
	// PhaseApplying: the node is being changed.
	PhaseApplying Phase = "Applying"
	// PhaseVerifying: the node is asked whether it shows what is desired.
	PhaseVerifying Phase = "Verifying"
	// PhaseSucceeded: the node shows what is desired.
	PhaseSucceeded Phase = "Succeeded"
	// PhaseFailed: the work stopped. It goes on when the desired specs change or a person asks for it.
	PhaseFailed Phase = "Failed"
)

// Reasons of a MachineUpdate that waits.
const (
	// ReasonNodeAccess: no NodeAccess, more than one, or one that can't be used, selects the Machine.
	ReasonNodeAccess = "NodeAccess"
	// ReasonUnreachable: the node can't be reached.
	ReasonUnreachable = "Unreachable"
	// ReasonHostKey: the node's host key is not the one it should be.
	ReasonHostKey = "HostKey"
	// ReasonSpecs: the desired specs can't be read, or can't be brought to the node as they are.
	ReasonSpecs = "Specs"
	// ReasonBlocked: the node's plan has problems.
	ReasonBlocked = "Blocked"
	// ReasonBusy: an earlier run on the node has not ended yet.
	ReasonBusy = "Busy"
	// ReasonPaused: the Cluster or the Machine is paused.
	ReasonPaused = "Paused"
	// ReasonDeleting: the Machine is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonTaken: Cluster API is about to delete or to remediate the Machine.
	ReasonTaken = "Taken"
	// ReasonAgent: the agent can't be brought to the node, or can't do its work there.
	ReasonAgent = "Agent"
	// ReasonWindow: the policies that select the Machine don't let the change start now.
	ReasonWindow = "Window"
	// ReasonBudget: they would, but as many updates have started as a policy's budget allows.
	ReasonBudget = "Budget"
	// ReasonHealth: they would, but a health gate of a policy does not hold, or is not known to.
	ReasonHealth = "Health"
	// ReasonSlot: as many nodes of the cluster are disturbed as may be at once.
	ReasonSlot = "Slot"
	// ReasonHold: somebody holds the node.
	ReasonHold = "Hold"
	// ReasonLease: the node's lease is another's, or was lost.
	ReasonLease = "Lease"
	// ReasonWorkload: the workload cluster's API server can't be asked.
	ReasonWorkload = "Workload"
	// ReasonAudit: what is sent to the node can't be recorded.
	ReasonAudit = "Audit"
	// ReasonNode: the Node is not ready, or not the one that the update began with.
	ReasonNode = "Node"
	// ReasonStaging: the node fetches another version of Kubernetes, or could not.
	ReasonStaging = "Staging"
	// ReasonSkew: other components of the cluster run versions that don't go with the one that is asked for, or what they run is not known.
	ReasonSkew = "Skew"
	// ReasonUpdater: a registered updater does not go on, or which are to be called is not known.
	ReasonUpdater = "Updater"
	// ReasonWithdrawn: Cluster API no longer asks for the update. It waits for the end of what runs on the node; one that has failed for
	// this reason had begun there.
	ReasonWithdrawn = "Withdrawn"
)

// Conditions of a MachineUpdate, besides Ready and Paused, which are as Cluster API has them of its own objects. Ready reports whether the node shows what is
// asked for, as far as is known: the update has succeeded, and the node has not drifted since.
const (
	// SucceededCondition reports whether the update that is asked for has been made.
	SucceededCondition = "Succeeded"
	// PermittedCondition reports whether change management lets the update start, or has. Its reasons are those of package
	// schedule.
	PermittedCondition = "Permitted"
)

// MachineUpdateSpec is what is asked for.
type MachineUpdateSpec struct {
	// digest identifies the desired specs of the Machine, its infrastructure machine and its bootstrap config, as
	// Cluster API sent them last or a rollback has written them. The specs themselves are read from those objects; they may contain secrets.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Digest string `json:"digest"`

	// record is kept by refit, and by nobody else: what may not be lost of the status.
	// +optional
	Record *UpdateRecord `json:"record,omitempty"`
}

// MachineUpdateStatus is how the update stands.
type MachineUpdateStatus struct {
	// phase is how far the update has come.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// phaseSince is since when the update is in this phase, and since when it waits for this reason.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`[0-9]\.[0-9]{6}(Z|[+-][0-9]{2}:[0-9]{2})$`
	PhaseSince *metav1.MicroTime `json:"phaseSince,omitempty"`

	// reason says in one word what a waiting update waits for, or what made one fail.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// step is what is being done on the node, or was done last.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Step string `json:"step,omitempty"`

	// message says what happened, why, and what to do. It contains no secrets.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`

	// observedDigest is the digest that the status is about.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ObservedDigest string `json:"observedDigest,omitempty"`

	// observedRetry is the value of the retry annotation that was acted upon last.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ObservedRetry string `json:"observedRetry,omitempty"`

	// attempts counts how often the work on the node was begun for this digest.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// instance is the refit server that began the last attempt.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Instance string `json:"instance,omitempty"`

	// address is where the node was reached last.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Address string `json:"address,omitempty"`

	// hostKey is where earlier versions of refit recorded the node's SSH host key. It is moved to a KnownHost when it is used.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	HostKey string `json:"hostKey,omitempty"`

	// changes are what the node changed for this digest.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Changes []Change `json:"changes,omitempty"`

	// actions are what was done on the node so that the changes take effect, in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=512
	Actions []string `json:"actions,omitempty"`

	// worstAction is the type of that of the actions which disturbs a node most.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	WorstAction string `json:"worstAction,omitempty"`

	// notes are remarks about the node, for example files that were edited there and left alone.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=4096
	Notes []string `json:"notes,omitempty"`

	// stepsDone counts the steps of the work on the node that are done.
	// +optional
	StepsDone int32 `json:"stepsDone,omitempty"`

	// stepsTotal counts all of them.
	// +optional
	StepsTotal int32 `json:"stepsTotal,omitempty"`

	// node is the Node that the work began with. Another one of the same name is not touched.
	// +optional
	Node *NodeReference `json:"node,omitempty"`

	// slot is the Machine's part of the nodes that may be disturbed at once. An update that has failed keeps it until it is
	// tried again, abandoned, or asked for other specs.
	// +optional
	Slot *Slot `json:"slot,omitempty"`

	// drain is how the node's drain stands.
	// +optional
	Drain *DrainStatus `json:"drain,omitempty"`

	// applyingSince is since when the node is being changed. As long as it is set the node may be half changed: a cordon of
	// refit's stays.
	// +optional
	ApplyingSince *metav1.Time `json:"applyingSince,omitempty"`

	// rebootingSince is since when the node has been on its way through a reboot.
	// +optional
	RebootingSince *metav1.Time `json:"rebootingSince,omitempty"`

	// soakingSince is since when all is done on the node, and it is watched before that counts as a success. It stays until that has ended
	// or refit releases the node, also while the node does not answer: no next node of the cluster is taken before.
	// +optional
	SoakingSince *metav1.Time `json:"soakingSince,omitempty"`

	// token fences the work on the node: it is the resourceVersion of the node's lease when refit acquired it last.
	// +optional
	Token int64 `json:"token,omitempty"`

	// updaters are how far the registered updaters of the Machine are that were called for these specs, in the order in which they are. The node does
	// its part after theirs.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Updaters []UpdaterRun `json:"updaters,omitempty"`

	// failedToken is the token of the run on the node whose failure was shown last. Another try does not take it for news.
	// +optional
	FailedToken int64 `json:"failedToken,omitempty"`

	// delayedEnd is set while a person has ended the update, and what refit has put on the node can't be removed yet.
	// +optional
	DelayedEnd *DelayedEnd `json:"delayedEnd,omitempty"`

	// observedAbandon is the value of the abandon annotation that was acted upon last.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ObservedAbandon string `json:"observedAbandon,omitempty"`

	// plan is what the node said the update takes, while the update waits.
	// +optional
	Plan *PlannedWork `json:"plan,omitempty"`

	// admission is what let the work on the node start. Work that has started is not held back any more.
	// +optional
	Admission *Admission `json:"admission,omitempty"`

	// starts are when work that disturbs the node has started, for this digest and for earlier ones, the latest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Starts []metav1.Time `json:"starts,omitempty"`

	// lastSucceededAt is when an update of the Machine last succeeded, for whatever digest. It is how old the Machine's
	// configuration is.
	// +optional
	LastSucceededAt *metav1.Time `json:"lastSucceededAt,omitempty"`

	// appliedDigest is the digest of the specs that the node was brought to last, while others are asked for and nothing has been
	// changed for them. An update that Cluster API no longer asks for goes back to it.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	AppliedDigest string `json:"appliedDigest,omitempty"`

	// nodeRecords are SHA-256 digests of what refit may have written into its annotation on the Node, which says what labels and taints
	// the specs had. A kubelet can write annotations of its own Node; what has none of these digests is not refit's and not believed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=64
	NodeRecords []string `json:"nodeRecords,omitempty"`

	// wantedSince is since when the Machine has not got what it was to have, whether or not other specs were asked for since. Deadlines count from it.
	// +optional
	WantedSince *metav1.Time `json:"wantedSince,omitempty"`

	// deadline is until when the update may wait, by a policy that holds it back.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`

	// heldDigest identifies what holds the update back, as the status shows it: the reason, the policies, the instants. It is compared; message is for people.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	HeldDigest string `json:"heldDigest,omitempty"`

	// startedAt is when the first attempt for this digest began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// finishedAt is when the update succeeded or failed.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`

	// drift is how the node compares with what was applied to it last.
	// +optional
	Drift *DriftStatus `json:"drift,omitempty"`

	// repair is set while a node that has drifted is brought back to what was applied.
	// +optional
	Repair *RepairStatus `json:"repair,omitempty"`

	// recordRevision is the revision of the spec's record that the status is as new as.
	// +optional
	RecordRevision int64 `json:"recordRevision,omitempty"`

	// rollback is how the Machine's objects are brought to what its owner wants, or were last.
	// +optional
	Rollback *RollbackStatus `json:"rollback,omitempty"`

	// conditions of the update: Ready, Succeeded, Paused, Permitted, Drifted, DeadlineNear.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AtWork returns the names of the registered updaters that were called and have not said that they are done.
func (s *MachineUpdateStatus) AtWork() []string {
	var names []string
	for _, run := range s.Updaters {
		if !run.Done {
			names = append(names, run.Name)
		}
	}
	return names
}

// Abandonable reports whether an update can be given up: it has failed, or it waits and keeps a node or a slot meanwhile, or a registered updater
// is at work. Work that is under way on the node ends first.
func (mu *MachineUpdate) Abandonable() bool {
	s := &mu.Status
	switch {
	case s.ObservedDigest != mu.Spec.Digest:
		return false
	case s.Phase == PhaseWaiting:
		return s.ApplyingSince != nil || s.Slot != nil
	case len(s.AtWork()) > 0 && s.Phase != PhaseSucceeded:
		return true
	default:
		return s.Phase == PhaseFailed
	}
}

// Abandoned reports whether the update has failed, and a person has acknowledged that: it holds nobody up.
func (mu *MachineUpdate) Abandoned() bool {
	s := &mu.Status
	return s.Phase == PhaseFailed && s.ObservedAbandon != "" && s.Slot == nil && s.Admission == nil // it was not tried again since
}

// PlannedWork is what an update takes on the node.
type PlannedWork struct {
	// material reports that it disturbs the node.
	// +optional
	Material bool `json:"material,omitempty"`

	// reboots reports that the node reboots.
	// +optional
	Reboots bool `json:"reboots,omitempty"`

	// kinds are what it is of: Configuration, PatchVersion, MinorVersion. Permits and excludes may be for some kinds only.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=64
	Kinds []string `json:"kinds,omitempty"`

	// disruption is the worst that it takes, at least Restart if anything is restarted. Permits and excludes may be for less, or for more, only.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Disruption string `json:"disruption,omitempty"`

	// actions are what it takes, in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=512
	Actions []string `json:"actions,omitempty"`

	// worstAction is the type of that of the actions which disturbs a node most.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	WorstAction string `json:"worstAction,omitempty"`
}

// EndRequest is how a person ends an update.
// +kubebuilder:validation:Enum=Abandon;Delete
type EndRequest string

// How a person ends an update.
const (
	// EndAbandon: it is abandoned.
	EndAbandon EndRequest = "Abandon"
	// EndDelete: its MachineUpdate is deleted.
	EndDelete EndRequest = "Delete"
)

// DelayedEnd is why an update has not ended yet that a person has ended.
type DelayedEnd struct {
	// request is what was asked for.
	// +required
	Request EndRequest `json:"request"`

	// reason says in one word what it waits for.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`

	// message is what the update told before.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`
}

// MachineUpdate is the in-place update of the Machine of the same name. It is made by refit, for one Machine at most one,
// and goes with the Machine.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=machineupdates,shortName=mu,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels.cluster\\.x-k8s\\.io/cluster-name"
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.reason"
// +kubebuilder:printcolumn:name="Step",type="string",JSONPath=".status.step"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message"
// +kubebuilder:printcolumn:name="Full message",type="string",JSONPath=".status.message",priority=1
type MachineUpdate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what is asked for.
	// +required
	Spec MachineUpdateSpec `json:"spec"`
	// status is how the update stands.
	// +optional
	Status MachineUpdateStatus `json:"status,omitzero"`
}

// MachineUpdateList is a list of MachineUpdates.
//
// +kubebuilder:object:root=true
type MachineUpdateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineUpdate `json:"items"`
}
