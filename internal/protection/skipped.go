package protection

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// SkipsRemediation reports whether somebody keeps MachineHealthChecks off a Machine for good. What refit has added for an update or a hold goes with that, and is
// none; nor is a value of refit's where it can't be read whose that is.
func SkipsRemediation(machine metav1.Object) bool {
	value, there := machine.GetAnnotations()[clusterv1.MachineSkipRemediationAnnotation]
	if !there || value != owner {
		return there
	}
	for _, p := range []party{updates, holds} {
		if added, err := p.recordOf(machine); err != nil || slices.Contains(added.keys, clusterv1.MachineSkipRemediationAnnotation) {
			return false
		}
	}
	return true
}
