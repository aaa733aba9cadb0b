package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DisruptionActionType is what is done on a node so that a change takes effect.
// +kubebuilder:validation:Enum=None;DaemonReload;TrustStoreUpdate;RebuildInitramfs;RebuildBootloader;Reload;Restart;NetworkReload;StaticPodRefresh;Drain;Reboot;Replace
type DisruptionActionType string

// The actions, from none to worst.
const (
	// NoDisruption: what uses the changed thing reads it again by itself.
	NoDisruption DisruptionActionType = "None"
	// DaemonReloadDisruption has systemd read its unit files again.
	DaemonReloadDisruption DisruptionActionType = "DaemonReload"
	// TrustStoreUpdateDisruption rebuilds the bundle of the authorities that the node trusts.
	TrustStoreUpdateDisruption DisruptionActionType = "TrustStoreUpdate"
	// RebuildInitramfsDisruption makes the file system again that the kernel boots with.
	RebuildInitramfsDisruption DisruptionActionType = "RebuildInitramfs"
	// RebuildBootloaderDisruption makes the boot loader's configuration again.
	RebuildBootloaderDisruption DisruptionActionType = "RebuildBootloader"
	// ReloadDisruption has a unit read its configuration again while it runs on.
	ReloadDisruption DisruptionActionType = "Reload"
	// RestartDisruption stops and starts a unit.
	RestartDisruption DisruptionActionType = "Restart"
	// NetworkReloadDisruption has what manages the node's network read its files again.
	NetworkReloadDisruption DisruptionActionType = "NetworkReload"
	// StaticPodRefreshDisruption restarts the static pods that mount what was changed, and waits until they run again.
	StaticPodRefreshDisruption DisruptionActionType = "StaticPodRefresh"
	// DrainDisruption moves the node's pods elsewhere before anything is written.
	DrainDisruption DisruptionActionType = "Drain"
	// RebootDisruption restarts the node.
	RebootDisruption DisruptionActionType = "Reboot"
	// ReplaceDisruption says that the change is not made in place.
	ReplaceDisruption DisruptionActionType = "Replace"
)

// DisruptionTimeout is how long an action may take, such as 90s, up to an hour.
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(h|m|s))+$`
// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('1h')",message="a timeout is longer than nothing, and at most 1h"
type DisruptionTimeout string

// SoakDuration is how long a node is watched after it was disturbed, such as 5m, up to an hour. 0s: not at all.
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(h|m|s))+$`
// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('1h')",message="a node is watched for an hour at most"
type SoakDuration string

// ConfirmTimeout is how long a node waits for a login, such as 2m.
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(h|m|s))+$`
// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('30s') && duration(self) <= duration('1h')",message="a login is awaited for 30s at least, and for 1h at most"
type ConfirmTimeout string

// DisruptionAction is one thing to do on a node.
// +kubebuilder:validation:XValidation:rule="(self.type in ['Reload', 'Restart']) == has(self.unit)",message="unit is needed for Reload and Restart, and not possible for other actions"
// +kubebuilder:validation:XValidation:rule="self.type != 'None' || !has(self.timeout)",message="None takes no time, and so no timeout"
// +kubebuilder:validation:XValidation:rule="!has(self.unit) || !(self.unit.lowerAscii() in ['-.mount', '-.slice', 'basic.target', 'ctrl-alt-del.target', 'default.target', 'dev.mount', 'dnf-offline-updates.service', 'dnf-system-upgrade-cleanup.service', 'dnf-system-upgrade.service', 'dnf5-offline-transaction-cleanup.service', 'dnf5-offline-transaction.service', 'emergency.service', 'emergency.target', 'exit.target', 'factory-reset.target', 'final.target', 'fwupd-offline-update.service', 'graphical.target', 'halt.service', 'halt.target', 'hibernate.target', 'hybrid-sleep.target', 'init.scope', 'initrd-cleanup.service', 'initrd-fs.target', 'initrd-parse-etc.service', 'initrd-root-device.target', 'initrd-root-fs.target', 'initrd-switch-root.service', 'initrd-switch-root.target', 'initrd-udevadm-cleanup-db.service', 'initrd-usr-fs.target', 'initrd.target', 'kexec.service', 'kexec.target', 'killprocs.service', 'kubepods-besteffort.slice', 'kubepods-burstable.slice', 'kubepods.slice', 'local-fs.target', 'machine.slice', 'multi-user.target', 'packagekit-offline-update.service', 'poweroff.service', 'poweroff.target', 'proc.mount', 'reboot.service', 'reboot.target', 'rescue.service', 'rescue.target', 'run.mount', 'runlevel0.target', 'runlevel1.target', 'runlevel2.target', 'runlevel3.target', 'runlevel4.target', 'runlevel5.target', 'runlevel6.target', 'shutdown.service', 'shutdown.target', 'sigpwr.target', 'single.service', 'sleep.target', 'soft-reboot.target', 'storage-target-mode.target', 'suspend-then-hibernate.target', 'suspend.target', 'sys.mount', 'sysinit.target', 'system-update-cleanup.service', 'system-update-pre.target', 'system-update.target', 'system.slice', 'systemd-exit.service', 'systemd-factory-reset-reboot.service', 'systemd-factory-reset-request.service', 'systemd-halt.service', 'systemd-hibernate.service', 'systemd-hybrid-sleep.service', 'systemd-kexec.service', 'systemd-poweroff.service', 'systemd-reboot.service', 'systemd-soft-reboot.service', 'systemd-suspend-then-hibernate.service', 'systemd-suspend.service', 'systemd-sysupdate-reboot.service', 'systemd-sysupdate-reboot.timer', 'umount.target', 'user.slice'])",message="unit ends or changes the state of the whole system, or is what all of it runs in; to restart the node use type: Reboot, for new settings of such a unit DaemonReload"
// +kubebuilder:validation:XValidation:rule="!has(self.unit) || self.type != 'Restart' || !(self.unit.lowerAscii() in ['dbus-broker.service', 'dbus.service', 'dbus.socket'])",message="the system does not survive a Restart of its message bus; use type: Reload or Reboot"
// +kubebuilder:validation:XValidation:rule="!has(self.unit) || self.unit.endsWith('.service') || self.unit.endsWith('.socket') || self.unit.endsWith('.timer') || self.unit.endsWith('.path') || (self.type == 'Reload' && self.unit.endsWith('.mount'))",message="Restart takes units of the types service, socket, timer and path only, and Reload these and mounts: what uses others is stopped with them; for new settings of such a unit use DaemonReload or Reboot"
// +kubebuilder:validation:XValidation:rule="!has(self.unit) || !self.unit.lowerAscii().startsWith('refit-')",message="names of units that begin with refit- are those of refit's own"
type DisruptionAction struct {
	// type of the action. Drain comes before anything is written, all others after it: DaemonReload, TrustStoreUpdate, NetworkReload, Reload,
	// Restart, StaticPodRefresh, RebuildInitramfs, RebuildBootloader, in this order. None, Reboot and Replace stand alone, but that Reboot can
	// have TrustStoreUpdate, RebuildInitramfs and RebuildBootloader beside it, which are done before it.
	// +required
	Type DisruptionActionType `json:"type"`

	// unit is the systemd unit of a Reload or a Restart, such as kubelet.service: a service, socket, timer or path, and for Reload also a
	// mount. Instances and templates (with @) can't be named, nor can units that end or change the state of the whole system, such as
	// reboot.target.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9:._\\-]+\.(service|socket|device|mount|automount|swap|target|path|timer|snapshot|slice|scope)$`
	Unit string `json:"unit,omitempty"`

	// timeout is how long the action may take before it counts as failed, such as 90s; at most 1h. By default it is what the
	// entry says, else what refit allows such an action.
	// +optional
	Timeout DisruptionTimeout `json:"timeout,omitempty"`
}

// Disruption is what a change takes on a node.
type Disruption struct {
	// actions that make a change real, at least one: None, when it takes nothing. They are done in the order that type tells,
	// whatever the order here, together with those of the other changes of an update, and equal ones once.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:XValidation:rule="size(self) == 1 || !self.exists(a, a.type in ['None', 'Replace']) && (!self.exists(a, a.type == 'Reboot') || self.exists_one(a, a.type == 'Reboot') && self.all(a, a.type in ['Reboot', 'TrustStoreUpdate', 'RebuildInitramfs', 'RebuildBootloader']))",message="None, Reboot and Replace stand alone; beside Reboot only TrustStoreUpdate, RebuildInitramfs and RebuildBootloader can be"
	Actions []DisruptionAction `json:"actions"`

	// timeout is how long each of the actions may take that has none of its own.
	// +optional
	Timeout DisruptionTimeout `json:"timeout,omitempty"`

	// unsafe: true lets the entry leave out what is built in for the same thing and brings a change into effect, or tests it: a Reload of
	// sshd, a restart of the static pods. Without it such an entry is refused, and the policy is not Ready. For a path it also lets files
	// be written of which the program skips the names that they are for. The entry is named in the
	// notes of the updates of all Machines that the policy selects, by refit explain, and is counted by the metric
	// refit_node_disruption_policy_unsafe_entries.
	// +optional
	Unsafe bool `json:"unsafe,omitempty"`
}

// FileDisruption is what a change of a file takes.
type FileDisruption struct {
	// path of a file, or of a directory that stands for everything below it. Of all entries, also those that are built in,
	// the longest path counts that matches; there are no wildcards.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^/[^\x00-\x1f\x7f]+$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('//') && !self.endsWith('/')",message="path must be clean: neither // nor a / at the end"
	// +kubebuilder:validation:XValidation:rule="!(self + '/').contains('/./') && !(self + '/').contains('/../')",message="path must be clean: neither . nor .. in it"
	// +kubebuilder:validation:XValidation:rule="!self.contains('*')",message="there are no wildcards: the path of a directory stands for everything below it"
	Path string `json:"path"`

	Disruption `json:",inline"`
}

// UnitDisruption is what a change of a unit takes: of /etc/systemd/system/NAME and of the drop-ins below
// /etc/systemd/system/NAME.d.
type UnitDisruption struct {
	// name of the systemd unit, such as containerd.service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9:._\\-]+\.(service|socket|device|mount|automount|swap|target|path|timer|snapshot|slice|scope)$`
	Name string `json:"name"`

	Disruption `json:",inline"`
}

// OnFailure is what becomes of a node on which an action has failed.
// +kubebuilder:validation:Enum=Rollback;Reboot;Stop
type OnFailure string

// What becomes of a node on which an action has failed.
const (
	// RollbackOnFailure puts back what was changed, and does the actions again.
	RollbackOnFailure OnFailure = "Rollback"
	// RebootOnFailure reboots the node with what was changed, once.
	RebootOnFailure OnFailure = "Reboot"
	// StopOnFailure leaves the node as it is, for somebody to look at.
	StopOnFailure OnFailure = "Stop"
)

// OnDrift is what becomes of a node that no longer shows what was applied to it.
// +kubebuilder:validation:Enum=Report;Repair;Refuse
type OnDrift string

// What becomes of a node that no longer shows what was applied to it.
const (
	// ReportDrift says so, and leaves the node as it is.
	ReportDrift OnDrift = "Report"
	// RepairDrift brings the node back to what its specs say, by an update like any other.
	RepairDrift OnDrift = "Repair"
	// RefuseDrift has updates of the node wait until it shows again what was applied.
	RefuseDrift OnDrift = "Refuse"
)

// FutureOnly reports whether fields can change without any effect on the machines that exist.
// +kubebuilder:validation:Enum=Never;Allow
type FutureOnly string

// Whether fields can change without any effect on the machines that exist.
const (
	// NeverFutureOnly: a change of such a field is not made in place.
	NeverFutureOnly FutureOnly = "Never"
	// AllowFutureOnly: a change of such a field takes nothing on the machines that exist, and counts for later ones.
	AllowFutureOnly FutureOnly = "Allow"
)

// InertField names fields of an infrastructure provider's machines that need no action on a node.
type InertField struct {
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

	// paths of the fields below spec, such as additionalTags or backend.docker.customImage; each stands for all below it.
	// Items of lists have no name: volumes.image is the image of every volume.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[a-zA-Z][a-zA-Z0-9_-]*(\.[a-zA-Z][a-zA-Z0-9_-]*)*$`
	// +kubebuilder:validation:items:XValidation:rule="self != 'spec' && !self.startsWith('spec.')",message="paths are below spec: leave out the spec. in front"
	Paths []string `json:"paths"`
}

// NodeDisruptionPolicySpec says what changes take on the nodes of the selected Machines. Each entry replaces the built-in one
// of the same path, name or domain; what is not named is as it is built in. Where several policies select a Machine and have
// the same entry, its actions are joined, so that the result does not depend on any order.
type NodeDisruptionPolicySpec struct {
	// selector says which Machines of the namespace the policy is for. Empty: all.
	// +optional
	Selector MachinesSelector `json:"selector,omitzero"`

	// files say what changes of files take.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=50
	Files []FileDisruption `json:"files,omitempty"`

	// units say what changes of units and their drop-ins take. An entry of files counts instead if its path is the unit's file,
	// its directory of drop-ins, or below that. systemd reads the changed unit files in any case: DaemonReload need not be named.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	Units []UnitDisruption `json:"units,omitempty"`

	// sshKeys says what a change of the keys takes by which users log in.
	// +optional
	SSHKeys *Disruption `json:"sshKeys,omitempty"`

	// users says what a change of accounts takes, but for their keys.
	// +optional
	Users *Disruption `json:"users,omitempty"`

	// ntp says what a change of the time servers takes.
	// +optional
	NTP *Disruption `json:"ntp,omitempty"`

	// kubeletArguments says what a change of the kubelet's arguments takes.
	// +optional
	KubeletArguments *Disruption `json:"kubeletArguments,omitempty"`

	// controlPlane says what a change of the control plane's static pods takes.
	// +optional
	ControlPlane *Disruption `json:"controlPlane,omitempty"`

	// taints says what a change of the Node's taints takes.
	// +optional
	Taints *Disruption `json:"taints,omitempty"`

	// kubernetesVersion says what a new version of Kubernetes takes beside what its update does in any case, which restarts the
	// kubelet. It is Drain by default.
	// +optional
	KubernetesVersion *Disruption `json:"kubernetesVersion,omitempty"`

	// onFailure says what becomes of a node on which an action has failed: Rollback puts back what was changed and does the
	// actions again, Reboot restarts the node with what was changed, Stop leaves it for somebody to look at. Empty: what other
	// policies of the Machine say, else Rollback. Where policies differ, Stop comes before Rollback, and Rollback before Reboot.
	// +optional
	OnFailure OnFailure `json:"onFailure,omitempty"`

	// soak is how long a node is watched after an update has restarted something on it, drained or rebooted it: what worked before has to
	// work for all of that time, else the update has failed; until then it has not succeeded and keeps its slot. Empty: what other policies
	// of the Machine say, else what --soak of refit says, which is 30s by default. Where policies differ, the longest counts.
	// +optional
	Soak SoakDuration `json:"soak,omitempty"`

	// confirmWithin is how long a node waits for a login of refit's after an update has done something to it, or has changed files by which
	// refit comes in: sshd's, sudo's, the network's, the firewall's. Without one the node puts everything back by itself. From 30s to 1h.
	// Empty: what other policies of the Machine say, else 2m. Where policies differ, the shortest counts.
	// +optional
	ConfirmWithin ConfirmTimeout `json:"confirmWithin,omitempty"`

	// probes are asked of a node before and after an update, beside what refit asks by itself: what works before and does not after makes
	// the update fail, what fails before is only noted. Those of all policies of the Machine count; a name may stand for different
	// questions in different policies. exec runs as root: whoever may write this runs commands on the nodes.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Probes []NodeProbe `json:"probes,omitempty"`

	// drift says what becomes of a node that no longer shows what was applied to it: Report says so, Repair brings it back by an
	// update like any other, Refuse has its updates wait. Empty: what other policies of the Machine say, else Report. Where
	// policies differ, Refuse comes before Repair, and Repair before Report.
	// +optional
	Drift OnDrift `json:"drift,omitempty"`

	// futureOnlyFields reports whether preKubeadmCommands, postKubeadmCommands, bootCommands, mounts, diskSetup, ignition, and in
	// clusterConfiguration certificateValidityPeriodDays, caCertificateValidityPeriodDays, encryptionAlgorithm and etcd's
	// serverCertSANs and peerCertSANs can change with no effect on the machines that exist: with Allow they count for later machines
	// only, and no machine is replaced for them. Empty: what other policies of the Machine say, else Never. Where policies differ,
	// Never comes before Allow.
	// +optional
	FutureOnlyFields FutureOnly `json:"futureOnlyFields,omitempty"`

	// inertFields are fields of infrastructure machines that need no action on a node, such as tags.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=kind
	// +kubebuilder:validation:MaxItems=20
	InertFields []InertField `json:"inertFields,omitempty"`
}

// EffectiveKind is what an effective rule is about.
// +kubebuilder:validation:Enum=File;Unit;SSHKeys;Users;NTP;KubeletArguments;ControlPlane;Taints;KubernetesVersion;Probe
type EffectiveKind string

// EffectiveRule is what a change of one thing takes by the policy and what is built in.
type EffectiveRule struct {
	// kind of what the rule is about.
	// +required
	Kind EffectiveKind `json:"kind"`

	// name is the path of files, or the name of a unit or a probe.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name,omitempty"`

	// actions as people read them, such as "Restart kubelet.service", in the order in which they are done; of a probe, what it asks.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Actions []string `json:"actions,omitempty"`

	// from says where the rule comes from: "built-in", or the name of the policy.
	// +required
	// +kubebuilder:validation:MaxLength=253
	From string `json:"from"`
}

// NodeDisruptionPolicyStatus is what the policy means now.
type NodeDisruptionPolicyStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// selectedMachines is how many Machines the policy selects.
	// +optional
	SelectedMachines *int32 `json:"selectedMachines,omitempty"`

	// effective is what is built in with the policy's entries in it. Other policies that select the same Machines are not in it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Effective []EffectiveRule `json:"effective,omitempty"`

	// conditions of the policy: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeDisruptionPolicy says what changes take on the nodes of the Machines that it selects.
//
// For example:
//
//	apiVersion: capi-refit.dev/v1alpha1
//	kind: NodeDisruptionPolicy
//	metadata: {name: fleet, namespace: fleet}
//	spec:
//	  files:
//	  - path: /etc/app
//	    actions:
//	    - {type: Restart, unit: app.service, timeout: 2m}
//	  onFailure: Rollback
//	  soak: 2m
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodedisruptionpolicies,shortName=ndp,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Machines",type="integer",JSONPath=".status.selectedMachines"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type NodeDisruptionPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says what changes take.
	// +required
	Spec NodeDisruptionPolicySpec `json:"spec"`
	// status is what the policy means now.
	// +optional
	Status NodeDisruptionPolicyStatus `json:"status,omitzero"`
}

// NodeDisruptionPolicyList is a list of NodeDisruptionPolicies.
//
// +kubebuilder:object:root=true
type NodeDisruptionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeDisruptionPolicy `json:"items"`
}
