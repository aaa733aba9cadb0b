package inplace

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-refit/refit/schedule"
)

// Proposal is what Cluster API will do with an answer.
type Proposal struct {
	Subject
	// Name is that of the Machine, or of the MachineSet.
	Name string
	// Machine has the metadata of the Machine. It is nil for a MachineSet.
	Machine *metav1.ObjectMeta
	// Annotations are those that the Machine is to have, or the Machines of the MachineSet.
	Annotations map[string]string
	// Digest identifies the desired specs.
	Digest string
	// Material reports that the change disturbs the node.
	Material bool
	// Class is what the change is of, and the worst that it takes.
	Class schedule.Class
	// Left are the changed fields that can't be updated in place, each with the reason. With some, the Machine is replaced.
	Left []string
}

// UpgradedPart is what of a cluster is upgraded.
type UpgradedPart string

// The parts, in the order in which Cluster API upgrades them.
const (
	UpgradedControlPlane UpgradedPart = "control plane"
	UpgradedWorkers      UpgradedPart = "workers"
)

// Upgrade is a part of a cluster that is about to be brought to another Kubernetes version.
type Upgrade struct {
	Namespace, Cluster string
	Part               UpgradedPart
	From, To           string
}
