package v1alpha1

// DeadlineCause is what a change may not wait for ever for.
// +kubebuilder:validation:Enum=Waiting;Certificates;Skew;EndOfLife
type DeadlineCause string

// The causes of deadlines.
const (
	// WaitingDeadline: the change has waited for as long as it may.
	WaitingDeadline DeadlineCause = "Waiting"
	// CertificatesDeadline: certificates of the control plane end that the change renews.
	CertificatesDeadline DeadlineCause = "Certificates"
	// SkewDeadline: the kubelet is as far behind the control plane as it may be, so that the next upgrade of that has to wait for it.
	SkewDeadline DeadlineCause = "Skew"
	// EndOfLifeDeadline: the minor version that the Machine runs is no longer supported.
	EndOfLifeDeadline DeadlineCause = "EndOfLife"
)

// AtDeadline is what becomes of a change at its deadline.
// +kubebuilder:validation:Enum=Hold;Open
type AtDeadline string

// What becomes of a change at its deadline.
const (
	// HoldAtDeadline: it goes on to wait, and that is told.
	HoldAtDeadline AtDeadline = "Hold"
	// OpenAtDeadline: it does not wait for the policy's windows any more.
	OpenAtDeadline AtDeadline = "Open"
)

// Deadline is until when changes may wait for a policy.
//
// +kubebuilder:validation:XValidation:rule="!has(self.causes) || !('Waiting' in self.causes) || has(self.after)",message="causes has Waiting, so that after has to say how long a change may wait"
// +kubebuilder:validation:XValidation:rule="!has(self.after) || !has(self.causes) || 'Waiting' in self.causes",message="after says how long a change may wait, and causes does not have Waiting"
type Deadline struct {
	// after is how long a change may wait, such as 30d or 36h; a day is 24 hours. It counts from when the Machine was first to have something that
	// it has not got since. By default waiting alone has no deadline.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+d)?([0-9]+(\.[0-9]+)?(h|m|s))*$`
	After string `json:"after,omitempty"`

	// warnBefore is how long before a deadline that is told, such as 7d, which is the default.
	// +optional
	// +kubebuilder:default="7d"
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+d)?([0-9]+(\.[0-9]+)?(h|m|s))*$`
	WarnBefore string `json:"warnBefore,omitempty"`

	// atDeadline says what becomes of a change at its deadline. With Hold it goes on to wait. With Open it starts as soon as all else lets it: the
	// policy's permits hold it back no more, its excludes and budget do.
	// +optional
	// +kubebuilder:default=Hold
	AtDeadline AtDeadline `json:"atDeadline,omitempty"`

	// causes lists the deadlines that count. By default all do.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Causes []DeadlineCause `json:"causes,omitempty"`
}
