package updaters

import (
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/node"
)

// What an Updater is given and gives is at home in packages that are refit's own. An updater outside of refit's module has it by these
// names. The rest of those packages can change at any time.

// What differs between the current and the desired specs of a machine.
type (
	// Change is all of it, by object.
	Change = fieldset.Change
	// ObjectChange is what differs between the specs of one object.
	ObjectChange = fieldset.ObjectChange
	// Field is one difference.
	Field = fieldset.Field
	// Spec is the spec of one object, as decoded JSON.
	Spec = fieldset.Spec
	// Object says which of a machine's objects a field belongs to.
	Object = fieldset.Object
	// Operation is how a field differs.
	Operation = fieldset.Operation
)

// The objects.
const (
	Machine               = fieldset.Machine
	InfrastructureMachine = fieldset.InfrastructureMachine
	BootstrapConfig       = fieldset.BootstrapConfig
)

// The operations.
const (
	Added     = fieldset.Added
	Removed   = fieldset.Removed
	Changed   = fieldset.Changed
	Reordered = fieldset.Reordered
)

// What a change takes on a node.
type (
	// Rules say it, those of the policies that select the machine included.
	Rules = disruption.Rules
	// Domain is a part of a machine that is no file.
	Domain = disruption.Domain
	// Action is one thing that is done.
	Action = disruption.Action
	// ActionType is what kind of action it is.
	ActionType = disruption.ActionType
)

// The domains, for Rules.Domain.
const (
	SSHKeysDomain           = disruption.SSHKeys
	UsersDomain             = disruption.Users
	NTPDomain               = disruption.NTP
	KubeletArgumentsDomain  = disruption.KubeletArguments
	ControlPlaneDomain      = disruption.ControlPlane
	TaintsDomain            = disruption.Taints
	KubernetesVersionDomain = disruption.KubernetesVersion
)

// The types of actions, the least disruptive first.
const (
	None              = disruption.None
	DaemonReload      = disruption.DaemonReload
	TrustStoreUpdate  = disruption.TrustStoreUpdate
	RebuildInitramfs  = disruption.RebuildInitramfs
	RebuildBootloader = disruption.RebuildBootloader
	Reload            = disruption.Reload
	Restart           = disruption.Restart
	NetworkReload     = disruption.NetworkReload
	StaticPodRefresh  = disruption.StaticPodRefresh
	Drain             = disruption.Drain
	Reboot            = disruption.Reboot
	Replace           = disruption.Replace
)

// BuiltinRules returns the rules where no policy says anything, for tests.
func BuiltinRules() Rules { return disruption.BuiltinRules() }

// What is wanted on a node.
type (
	// Resource is one thing. Exactly one member is set. Those that have no name here are for machines that kubeadm makes.
	Resource = node.Resource
	// File is a regular file.
	File = node.File
	// Unit is the state of a systemd unit.
	Unit = node.Unit
	// NTP is how the node keeps its time.
	NTP = node.NTP
	// User is an account.
	User = node.User
)
