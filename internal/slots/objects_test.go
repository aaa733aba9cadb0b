package slots

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
)

type (
	editMachine = func(*clusterv1.Machine)
	editUpdate  = func(*refitv1.MachineUpdate)
)

// worker is a Machine of cluster c1 whose node is ready.
func worker(name string, edits ...editMachine) *clusterv1.Machine {
	m := managementtest.Machine("fleet", name, "c1")
	condition(clusterv1.MachineNodeReadyCondition, metav1.ConditionTrue)(m)
	condition(clusterv1.MachineNodeHealthyCondition, metav1.ConditionTrue)(m)
	for _, e := range edits {
		e(m)
	}
	return m
}

// controlPlane is a Machine of a KubeadmControlPlane that is healthy.
func controlPlane(name string, edits ...editMachine) *clusterv1.Machine {
	return worker(name, append([]editMachine{func(m *clusterv1.Machine) {
		m.Labels[clusterv1.MachineControlPlaneLabel] = ""
		condition(controlplanev1.KubeadmControlPlaneMachineEtcdMemberHealthyCondition, metav1.ConditionTrue)(m)
		condition(controlplanev1.KubeadmControlPlaneMachineAPIServerPodHealthyCondition, metav1.ConditionTrue)(m)
	}}, edits...)...)
}

func condition(name string, status metav1.ConditionStatus) editMachine {
	return because(name, status, "Test")
}

func because(name string, status metav1.ConditionStatus, reason string) editMachine {
	return func(m *clusterv1.Machine) {
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: name, Status: status, Reason: reason})
	}
}

// memberDown has the etcd member of a control plane be out of its cluster.
func memberDown(m *clusterv1.Machine) {
	because(controlplanev1.KubeadmControlPlaneMachineEtcdMemberHealthyCondition, metav1.ConditionFalse,
		controlplanev1.KubeadmControlPlaneMachineEtcdMemberNotHealthyReason)(m)
	because(controlplanev1.KubeadmControlPlaneMachineEtcdPodHealthyCondition, metav1.ConditionFalse,
		controlplanev1.KubeadmControlPlaneMachinePodFailedReason)(m)
}

var notReady = condition(clusterv1.MachineNodeReadyCondition, metav1.ConditionFalse)

func without(name string) editMachine {
	return func(m *clusterv1.Machine) { meta.RemoveStatusCondition(&m.Status.Conditions, name) }
}

func deleting(m *clusterv1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: start} }

func noNode(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" }

func inDomain(name string) editMachine {
	return func(m *clusterv1.Machine) { m.Spec.FailureDomain = name }
}

// elsewhere has the Machine be one of another cluster.
func elsewhere(m *clusterv1.Machine) {
	m.Spec.ClusterName, m.Labels[clusterv1.ClusterNameLabel] = "c2", "c2"
}

// of is the MachineUpdate of a Machine.
func of(m *clusterv1.Machine, edits ...editUpdate) *refitv1.MachineUpdate {
	return managementtest.MachineUpdate(m, edits...)
}

func holds(mu *refitv1.MachineUpdate) {
	mu.Status.Phase, mu.Status.Slot = refitv1.PhaseDraining, &refitv1.Slot{TakenAt: metav1.NewTime(start)}
}

func fails(mu *refitv1.MachineUpdate) { mu.Status.Phase = refitv1.PhaseFailed }

// releases the slot, as the controller does in the end.
func lets(mu *refitv1.MachineUpdate) {
	mu.Status.Phase, mu.Status.Slot = refitv1.PhaseSucceeded, nil
}

// all returns Machines with their MachineUpdates, none of which has a slot.
func all(machines ...*clusterv1.Machine) []client.Object {
	var objects []client.Object
	for _, m := range machines {
		objects = append(objects, m, of(m))
	}
	return objects
}

// pool is n workers: w00, w01, and so on.
func pool(n int, edits ...editMachine) []client.Object {
	var machines []*clusterv1.Machine
	for i := range n {
		machines = append(machines, worker(fmt.Sprintf("w%02d", i), edits...))
	}
	return all(machines...)
}

func atMost(n int32) Limits { return Limits{Workers: intstr.FromInt32(n)} }
