// Package v1alpha1 contains the API of refit: how nodes are reached, when they may be disturbed, what changes take
// on them, where Kubernetes comes from, and how updates of machines stand.
//
// +kubebuilder:object:generate=true
// +groupName=capi-refit.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the API.
var GroupVersion = schema.GroupVersion{Group: "capi-refit.dev", Version: "v1alpha1"}

// AddToScheme adds the types of this API to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&BootImagePolicy{}, &BootImagePolicyList{},
		&ChangeManagementPolicy{}, &ChangeManagementPolicyList{},
		&ClusterChangeManagementPolicy{}, &ClusterChangeManagementPolicyList{},
		&KnownHost{}, &KnownHostList{},
		&KubernetesSource{}, &KubernetesSourceList{},
		&MachineUpdate{}, &MachineUpdateList{},
		&NodeAccess{}, &NodeAccessList{},
		&NodeDisruptionPolicy{}, &NodeDisruptionPolicyList{},
		&PendingChange{}, &PendingChangeList{},
		&UpdaterRegistration{}, &UpdaterRegistrationList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

const (
	// AddressAnnotation on a Machine is the address at which its node is reached, "host" or "host:port". It wins over the
	// addresses in the Machine's status. With TrustOnFirstUse it is not taken.
	AddressAnnotation = "capi-refit.dev/address"

	// UpdateFinalizer on a MachineUpdate keeps it until nothing of refit's is left on its Machine, on the Node and on the node itself. It is
	// there from the start of an update to its end.
	UpdateFinalizer = "capi-refit.dev/machineupdate"
	// GraceFinalizer is on policies of either kind that go on to count for a while when they are deleted.
	GraceFinalizer = "capi-refit.dev/deletion-grace"

	// RetryAnnotation on a MachineUpdate asks for another try of an update that has failed. Each new value is one try.
	RetryAnnotation = "capi-refit.dev/retry"

	// AbandonAnnotation on a MachineUpdate acknowledges that an update has failed: its slot and all else of refit that was kept
	// goes. Each new value is acted upon once.
	AbandonAnnotation = "capi-refit.dev/abandon"

	// PermitAnnotation on a MachineUpdate permits the one change whose ID it has, where policies are Manual: an instant (RFC 3339), the ID, until
	// when it holds (RFC 3339, or - for always), and who permits it, with blanks between.
	PermitAnnotation = "capi-refit.dev/permit"

	// HoldAnnotation on a Machine, or on its Node, holds the node: until an instant (RFC 3339), or with any other value until
	// the annotation is removed. HoldAnnotation with OverrideReasonSuffix says why; so can a value that is neither an instant
	// nor "true".
	HoldAnnotation = "capi-refit.dev/hold"

	// PermissiveUntilAnnotation on a Cluster, KubeadmControlPlane, MachineDeployment or Machine opens the policies of its
	// Machines until an instant (RFC 3339), or as long as it is "true". The policies' maxOverride bounds it. On a
	// ClusterChangeManagementPolicy it opens that one.
	PermissiveUntilAnnotation = "capi-refit.dev/permissive-until"

	// PermissiveSinceAnnotation is where refit's leader notes when it saw PermissiveUntilAnnotation first with its value: an
	// instant (RFC 3339), a blank, and the value. maxOverride counts from there.
	PermissiveSinceAnnotation = "capi-refit.dev/permissive-since"

	// RestrictiveUntilAnnotation on the same objects closes the policies until an instant, or as long as it is "true".
	RestrictiveUntilAnnotation = "capi-refit.dev/restrictive-until"

	// RestrictiveByAnnotation is who has set RestrictiveUntilAnnotation: refit pause writes it.
	RestrictiveByAnnotation = "capi-refit.dev/restrictive-until-by"

	// NotBeforeAnnotation on the same objects is when what is wanted there may start at the earliest (RFC 3339): no update starts before.
	NotBeforeAnnotation = "capi-refit.dev/not-before"

	// BypassAnnotation on the same objects lets the one change go at once whose digest it has; more than one are separated
	// by commas. What waits says its digest.
	BypassAnnotation = "capi-refit.dev/bypass-change-management" //nolint:gosec // the name of an annotation

	// OverrideReasonSuffix makes the annotation with the reason of an override out of the override's: it is shown where the
	// override is.
	OverrideReasonSuffix = "-reason"

	// FailuresSeenAnnotation on a ChangeManagementPolicy says until when (RFC 3339) somebody has looked at the failures of Machines that are gone:
	// they count against stopAfterFailures no more.
	FailuresSeenAnnotation = "capi-refit.dev/failures-seen"

	// CalendarUpdatedAnnotation on a ConfigMap with calendars is when they were last known to be right (RFC 3339). Without it
	// they are as old as the last change of the ConfigMap.
	CalendarUpdatedAnnotation = "capi-refit.dev/calendar-updated"
)
