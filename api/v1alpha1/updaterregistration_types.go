package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UpdaterDisturbs is what the work of a registered updater takes on a node.
// +kubebuilder:validation:Enum=None;Drain
type UpdaterDisturbs string

// What the work of a registered updater takes on a node.
const (
	// UpdaterDisturbsNone: pods go on to run.
	UpdaterDisturbsNone UpdaterDisturbs = "None"
	// UpdaterDisturbsDrain: pods have to leave first.
	UpdaterDisturbsDrain UpdaterDisturbs = "Drain"
)

// UpdaterFailurePolicy is what becomes of a change about which a registered updater can't be asked.
// +kubebuilder:validation:Enum=Fail
type UpdaterFailurePolicy string

// UpdaterFails has nothing be decided, so that no machine is replaced.
const UpdaterFails UpdaterFailurePolicy = "Fail"

// UpdaterReady is the condition that the updater was asked for its handlers, and has those that it needs.
const UpdaterReady = "Ready"

// UpdaterRegistrationSpec says where a runtime extension is that updates machines in place, and which.
type UpdaterRegistrationSpec struct {
	// clientConfig says where the extension is, and how it is trusted.
	// +required
	ClientConfig UpdaterClientConfig `json:"clientConfig"`

	// handlers names handlers of the extension. One that is left out is found by discovery: the only handler that the extension has for the hook.
	// +optional
	Handlers UpdaterHandlers `json:"handlers,omitzero"`

	// priority orders updaters: those with a higher one are asked first, and those with the same in the order of their names. refit's own are always
	// asked before all of them.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`

	// namespaceSelector says by the labels of Namespaces in which of them it is for Machines. Empty: in all.
	// +optional
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector,omitzero"`

	// clusterSelector says by the labels of Clusters for whose Machines it is. Empty: for those of all.
	// +optional
	ClusterSelector metav1.LabelSelector `json:"clusterSelector,omitzero"`

	// machineSelector says by the labels of Machines for which of them it is. Empty: for all.
	// +optional
	MachineSelector metav1.LabelSelector `json:"machineSelector,omitzero"`

	// infrastructureKinds are those of the infrastructure machines for which it is, such as DevMachine. None: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	InfrastructureKinds []string `json:"infrastructureKinds,omitempty"`

	// bootstrapKinds are those of the bootstrap configs for which it is, such as RKE2Config. None: all, and machines without one.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	BootstrapKinds []string `json:"bootstrapKinds,omitempty"`

	// timeoutSeconds is how long one answer may take. Cluster API waits ten seconds for all answers together.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// failurePolicy is what becomes of a change about which it can't be asked. It can only be Fail: nothing is decided, and no machine is replaced.
	// +optional
	// +kubebuilder:default=Fail
	FailurePolicy UpdaterFailurePolicy `json:"failurePolicy,omitempty"`

	// disturbs says what its work takes on a node. With Drain, windows are asked and pods leave before it is called.
	// +optional
	// +kubebuilder:default=Drain
	Disturbs UpdaterDisturbs `json:"disturbs,omitempty"`
}

// UpdaterClientConfig says where an extension is.
//
// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.service)",message="clientConfig is either url or service"
type UpdaterClientConfig struct {
	// url of the extension, such as https://extension.example.com:9443, without a query.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https://[^?#@\s]+$`
	URL string `json:"url,omitempty"`

	// service of the management cluster that leads to the extension.
	// +optional
	Service *UpdaterService `json:"service,omitempty"`

	// caBundle are the authorities of the extension's serving certificate, in PEM.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=51200
	CABundle []byte `json:"caBundle"`

	// clientCertificate names the Secret in refit's own namespace whose tls.crt and tls.key show the extension who asks. None: nothing does.
	// +optional
	ClientCertificate *UpdaterSecret `json:"clientCertificate,omitempty"`
}

// UpdaterSecret names a Secret in refit's own namespace.
type UpdaterSecret struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// UpdaterService is a Service.
type UpdaterService struct {
	// namespace of the Service.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`

	// name of the Service.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// port of the Service.
	// +optional
	// +kubebuilder:default=443
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// path before those of the hooks, such as /extension.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^/[^?#@\s]*$`
	Path string `json:"path,omitempty"`
}

// UpdaterHandlers names handlers, as discovery does.
type UpdaterHandlers struct {
	// canUpdateMachine answers CanUpdateMachine.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	CanUpdateMachine string `json:"canUpdateMachine,omitempty"`

	// canUpdateMachineSet answers CanUpdateMachineSet.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	CanUpdateMachineSet string `json:"canUpdateMachineSet,omitempty"`

	// updateMachine answers UpdateMachine.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	UpdateMachine string `json:"updateMachine,omitempty"`
}

// UpdaterRegistrationStatus is what is known of an extension.
type UpdaterRegistrationStatus struct {
	// conditions: Ready reports whether its handlers were discovered, and why not.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// handlers that are asked.
	// +optional
	Handlers UpdaterHandlers `json:"handlers,omitzero"`

	// observedGeneration is the generation of the spec that this is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// UpdaterRegistration makes another runtime extension an updater beside refit's own: it is asked about what they leave, and called when a machine
// is updated. It is the platform's: whoever may write one says whom refit trusts with all machines that it selects.
//
// For example:
//
//	apiVersion: capi-refit.dev/v1alpha1
//	kind: UpdaterRegistration
//	metadata: {name: infra}
//	spec:
//	  clientConfig:
//	    service: {namespace: infra-system, name: infra-extension}
//	    caBundle: Q0EtQlVORExFCg==
//	    clientCertificate: {name: infra-client}
//	  clusterSelector:
//	    matchLabels: {in-place: infra}
//	  infrastructureKinds: [DevMachine]
//	  disturbs: Drain
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=updaterregistrations,scope=Cluster,categories=cluster-api
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Priority",type="integer",JSONPath=".spec.priority"
// +kubebuilder:printcolumn:name="Disturbs",type="string",JSONPath=".spec.disturbs"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Reason",type="string",priority=1,JSONPath=".status.conditions[?(@.type=='Ready')].message"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type UpdaterRegistration struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says where the extension is, and for which Machines.
	// +required
	Spec UpdaterRegistrationSpec `json:"spec"`
	// status is what is known of it.
	// +optional
	Status UpdaterRegistrationStatus `json:"status,omitzero"`
}

// UpdaterRegistrationList is a list of UpdaterRegistrations.
//
// +kubebuilder:object:root=true
type UpdaterRegistrationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []UpdaterRegistration `json:"items"`
}
