package bootimage

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// clusterAPIKinds are those of Cluster API that control infrastructure machines and their templates.
var clusterAPIKinds = []string{"Cluster", "ClusterClass", "Machine", "MachineDeployment", "MachinePool", "MachineSet"}

// controlPlaneGroup is the API group of control planes, KubeadmControlPlane and those of other providers.
const controlPlaneGroup = "controlplane.cluster.x-k8s.io"

// ForeignController returns what controls an infrastructure machine, or a template of such, if it is not Cluster API, as people
// read it: "NodePool pool-1". What it controls may be put back or made again by it at any time, and is left alone.
func ForeignController(o metav1.Object) (string, bool) {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return "", false
	}
	group := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group
	if group == controlPlaneGroup || group == clusterv1.GroupVersion.Group && slices.Contains(clusterAPIKinds, owner.Kind) {
		return "", false
	}
	return fmt.Sprintf("%s %s", owner.Kind, owner.Name), true
}
