package v1alpha1

// ProbeTimeout is how long one try of a probe may take, such as 30s, up to five minutes.
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(h|m|s))+$`
// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('5m')",message="a probe takes longer than nothing, and at most 5m"
type ProbeTimeout string

// ProbedStatus is the status that a condition of the Node object has to have.
// +kubebuilder:validation:Enum="True";"False";Unknown
type ProbedStatus string

// ExecProbe is a command that works if it exits with 0.
type ExecProbe struct {
	// command is a program with its arguments; no shell reads it. The program is an absolute path, or a name that is looked for in the
	// node's directories of programs. The agent runs it as root. Put no secret here: whoever reads the policy reads it, and so does any
	// user of the node while it runs.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:Pattern=`^[^\x00]*$`
	// +kubebuilder:validation:XValidation:rule="self[0] != '' && (!self[0].contains('/') || self[0].startsWith('/'))",message="the program is an absolute path, or a name without a slash"
	Command []string `json:"command"`
}

// HTTPProbe is a URL that works if it answers a GET with a status of 200 to 399.
type HTTPProbe struct {
	// url is asked from the node, with no proxy. Redirects are not followed: they are an answer.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9._:\[\]%-]+([/?][^\s#]*)?$`
	URL string `json:"url"`

	// caFile is a file of the node with the authorities by which a server of https is verified. Empty: those that the node trusts.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^/[^\x00-\x1f\x7f]+$`
	CAFile string `json:"caFile,omitempty"`

	// insecureSkipVerify takes whatever certificate a server of https has.
	// +optional
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// NodeConditionProbe is a condition that the Node object has to have.
type NodeConditionProbe struct {
	// type of the condition, such as DiskPressure.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$`
	Type string `json:"type"`

	// status that the condition has when all is well.
	// +required
	Status ProbedStatus `json:"status"`
}

// NodeProbe asks a node whether something works on it.
// +kubebuilder:validation:XValidation:rule="[has(self.exec), has(self.http), has(self.tcp), has(self.unit), has(self.nodeCondition)].exists_one(x, x)",message="a probe has one of exec, http, tcp, unit and nodeCondition, and no more"
type NodeProbe struct {
	// name of the probe, by which messages name it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// exec is a command that the agent runs on the node as root. It works if it exits with 0.
	// +optional
	Exec *ExecProbe `json:"exec,omitempty"`

	// http works if a URL answers with a status of 200 to 399.
	// +optional
	HTTP *HTTPProbe `json:"http,omitempty"`

	// tcp is a host and a port, such as 127.0.0.1:5432. It works if it takes a connection from the node.
	// +optional
	// +kubebuilder:validation:MaxLength=261
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9._-]+|\[[A-Fa-f0-9:.%a-z]+\]):[0-9]{1,5}$`
	TCP string `json:"tcp,omitempty"`

	// unit is a systemd unit, such as app.service. It works if it is active; while the node is watched it must not be started again.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9:._\\-]+\.(service|socket|device|mount|automount|swap|target|path|timer|snapshot|slice|scope)$`
	Unit string `json:"unit,omitempty"`

	// nodeCondition works if the Node object has a condition with this status.
	// +optional
	NodeCondition *NodeConditionProbe `json:"nodeCondition,omitempty"`

	// timeout is how long one try may take, at most 5m. Empty: 10s.
	// +optional
	Timeout ProbeTimeout `json:"timeout,omitempty"`

	// retries is how often it is asked again, after it has failed, until that counts: from 0 to 10. Empty: 2.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Retries *int32 `json:"retries,omitempty"`
}
