package machineupdate

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// taken returns what an update waits for whose Machine Cluster API is about to take, or nil. To disturb such a node helps nobody, and what
// has been begun there keeps Cluster API from it; so that ends, and the node is released.
func taken(machine *clusterv1.Machine) *wait {
	why := ""
	for _, annotation := range []struct{ name, what string }{
		{clusterv1.DeleteMachineAnnotation, "delete it first when it scales down"},
		{clusterv1.RemediateMachineAnnotation, "remediate it"},
	} {
		if _, there := machine.Annotations[annotation.name]; there {
			why = fmt.Sprintf("its annotation %s asks Cluster API to %s; to have it updated instead: kubectl annotate machine -n %s %s %s-",
				annotation.name, annotation.what, machine.Namespace, machine.Name, annotation.name)
			break
		}
	}
	if c := conditions.Get(machine, clusterv1.MachineOwnerRemediatedCondition); why == "" && remediates(c) {
		why = fmt.Sprintf("its condition %s is False (%s: %s), so that its owner replaces it", c.Type, c.Reason, c.Message)
	}
	if why == "" {
		return nil
	}
	return &wait{
		reason: refitv1.ReasonTaken, releases: true,
		message: "Cluster API is about to take the Machine, so its node is not touched: " + why,
	}
}

// remediates reports whether the owner of a Machine is about to replace it, by the Machine's condition. What its owner can't remediate, or
// puts off, an update may mend: a control plane puts it off for an upgrade of its Cluster, which may wait for that update, and for an etcd
// that can't be asked.
func remediates(c *metav1.Condition) bool {
	if c == nil || c.Status != metav1.ConditionFalse {
		return false
	}
	switch c.Reason {
	case clusterv1.MachineSetMachineCannotBeRemediatedReason, clusterv1.MachineSetMachineRemediationDeferredReason: // a control plane's are the same
		return false
	default:
		return true
	}
}
