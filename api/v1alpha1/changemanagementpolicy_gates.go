package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// OnUnknown is what becomes of new starts while a health gate has no answer.
// +kubebuilder:validation:Enum=Hold;Ignore
type OnUnknown string

// What becomes of new starts while a health gate has no answer.
const (
	// HoldOnUnknown: none starts.
	HoldOnUnknown OnUnknown = "Hold"
	// IgnoreOnUnknown: they start as if the gate held.
	IgnoreOnUnknown OnUnknown = "Ignore"
)

// HealthGate is a question that is asked before each start, and while a node soaks. While its answer is no, no update of a Machine that the policy
// selects starts.
//
// +kubebuilder:validation:XValidation:rule="has(self.prometheus) != has(self.cel)",message="a gate is either prometheus or cel"
type HealthGate struct {
	// name of the gate, for messages and metrics.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// prometheus compares the result of a query.
	// +optional
	Prometheus *PrometheusGate `json:"prometheus,omitempty"`

	// cel evaluates an expression over objects.
	// +optional
	CEL *CELGate `json:"cel,omitempty"`

	// onError says what becomes of new starts while the gate can't be asked: Prometheus does not answer, an object is not there. A gate that was not
	// asked yet holds them in any case.
	// +optional
	// +kubebuilder:default=Hold
	OnError OnUnknown `json:"onError,omitempty"`

	// timeout is how long asking may take, such as 10s; at most 30s, and no longer than half of the interval.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(h|m|s))+$`
	Timeout string `json:"timeout,omitempty"`

	// interval is how old an answer may be that lets an update start, such as 30s; at least 10s and at most 1h. While updates wait or soak the gate is asked twice in
	// that time.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(h|m|s))+$`
	Interval string `json:"interval,omitempty"`
}

// PrometheusGate compares the result of an instant query. All series of the result have to compare.
type PrometheusGate struct {
	// url of what speaks Prometheus' HTTP API, such as https://prometheus.monitoring.svc:9090, without /api/v1. refit asks those alone that begin as
	// its flag --gate-prometheus-url-prefixes says.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://[^?#@]+$`
	URL string `json:"url"`

	// query in PromQL. Its result is an instant vector or a scalar.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`

	// mustBe is what each value of the result has to be.
	// +required
	MustBe Comparison `json:"mustBe"`

	// onEmpty says what becomes of new starts while the result has no series, or one without a number (NaN): by default none starts, since nobody
	// measures what is asked for.
	// +optional
	// +kubebuilder:default=Hold
	OnEmpty OnUnknown `json:"onEmpty,omitempty"`

	// auth says how refit shows who it is. None: it does not.
	// +optional
	Auth *PrometheusAuth `json:"auth,omitempty"`
}

// Comparison is with a number.
type Comparison struct {
	// operator compares a value with the number.
	// +required
	// +kubebuilder:validation:Enum=LessThan;LessThanOrEqual;GreaterThan;GreaterThanOrEqual;Equal;NotEqual
	Operator ComparisonOperator `json:"operator"`

	// value is the number, such as "0.01".
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$`
	Value string `json:"value"`
}

// ComparisonOperator compares two numbers.
type ComparisonOperator string

// The operators.
const (
	LessThan           ComparisonOperator = "LessThan"
	LessThanOrEqual    ComparisonOperator = "LessThanOrEqual"
	GreaterThan        ComparisonOperator = "GreaterThan"
	GreaterThanOrEqual ComparisonOperator = "GreaterThanOrEqual"
	Equal              ComparisonOperator = "Equal"
	NotEqual           ComparisonOperator = "NotEqual"
)

// PrometheusAuth is how refit shows who it is, and whom it trusts.
type PrometheusAuth struct {
	// secretRef names a Secret in the policy's namespace. Of its keys count: token, a bearer token; tls.crt and tls.key, a client certificate; ca.crt,
	// the authorities of the server's certificate, instead of the system's. It is read for each question.
	// +required
	SecretRef GateSecret `json:"secretRef"`
}

// GateSecret names a Secret.
type GateSecret struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// CELGate evaluates an expression.
type CELGate struct {
	// expression in CEL that has to be true. Each object is a variable by its name, such as
	// web.status.?readyReplicas.orValue(0) >= 2.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Expression string `json:"expression"`

	// objects that the expression is about. They are read when the gate is asked.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Objects []GateObject `json:"objects"`
}

// ObjectsCluster is where an object is.
// +kubebuilder:validation:Enum=Management;Workload
type ObjectsCluster string

// Where an object is.
const (
	// ManagementCluster is where refit and the policy are.
	ManagementCluster ObjectsCluster = "Management"
	// WorkloadCluster is the cluster of the Machine whose update would start: the gate is one for each.
	WorkloadCluster ObjectsCluster = "Workload"
)

// GateObject names an object. It is not a Secret, nor what nodes are bootstrapped from: what an expression says of it is shown to others.
//
// +kubebuilder:validation:XValidation:rule="self.cluster != 'Management' || !has(self.__namespace__)",message="objects of the management cluster are those of the policy's namespace: leave namespace out"
// +kubebuilder:validation:XValidation:rule="self.apiVersion.contains('.') || self.kind.lowerAscii() != 'secret'",message="a gate can't be about Secrets: messages show what it reads"
// +kubebuilder:validation:XValidation:rule="!self.apiVersion.startsWith('bootstrap.cluster.x-k8s.io/')",message="a gate can't be about what nodes are bootstrapped from: it has secrets"
type GateObject struct {
	// name of the variable in the expression.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z][a-zA-Z0-9_]*$`
	Name string `json:"name"`

	// cluster that the object is in.
	// +required
	Cluster ObjectsCluster `json:"cluster"`

	// apiVersion of the object, such as apps/v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind of the object, such as Deployment.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// namespace of an object in the workload cluster; none if it has none. In the management cluster it is the policy's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// objectName is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ObjectName string `json:"objectName"`
}

// GateState is what a health gate has answered.
// +kubebuilder:validation:Enum=Passing;Failing;Unknown
type GateState string

// What a health gate has answered.
const (
	// GatePassing: it holds.
	GatePassing GateState = "Passing"
	// GateFailing: it does not hold.
	GateFailing GateState = "Failing"
	// GateUnknown: it can't be asked, or its answer says nothing.
	GateUnknown GateState = "Unknown"
)

// GateStatus is what a health gate has answered.
type GateStatus struct {
	// name of the gate.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// cluster that it was asked about, if it is about objects of workload clusters.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster,omitempty"`

	// state is the answer.
	// +required
	State GateState `json:"state"`

	// since is when the answer came to be that.
	// +required
	Since metav1.Time `json:"since"`

	// message says by which value, as of then.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// GateFailure is a health gate that did not hold while a node soaked.
type GateFailure struct {
	LedgerEntry `json:",inline"`

	// gate that did not hold.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Gate string `json:"gate"`

	// message says by which value.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}
