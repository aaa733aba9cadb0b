// Package v1alpha1 contains the API of refit: how nodes are reached, and how updates of machines stand.
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
	s.AddKnownTypes(GroupVersion, &MachineUpdate{}, &MachineUpdateList{}, &NodeAccess{}, &NodeAccessList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

const (
	// AddressAnnotation on a Machine is the address at which its node is reached, "host" or "host:port". It wins over the
	// addresses in the Machine's status.
	AddressAnnotation = "capi-refit.dev/address"

	// RetryAnnotation on a MachineUpdate asks for another try of an update that has failed. Each new value is one try.
	RetryAnnotation = "capi-refit.dev/retry"
)
