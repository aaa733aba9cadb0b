package rotation

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/updaters"
)

// machine is cp-1, one of a control plane.
func machine(cluster, annotation string) client.Object {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cp-1", Labels: map[string]string{
		clusterv1.ClusterNameLabel: cluster, clusterv1.MachineControlPlaneLabel: "",
	}}}
	if annotation != "" {
		m.Annotations = map[string]string{annotation: ""}
	}
	return m
}

func conditions(components, etcd string) func(*unstructured.Unstructured) {
	var all []any
	for name, status := range map[string]string{"ControlPlaneComponentsHealthy": components, "EtcdClusterHealthy": etcd} {
		if status != "" {
			all = append(all, object{"type": name, "status": status, "message": "* Machine cp-1:\n  * is ill"})
		}
	}
	return field(all, "status", "conditions")
}

// TestControlPlanesThatAreNotWell: Cluster API deletes a machine that is not healthy without asking refit.
func TestControlPlanesThatAreNotWell(t *testing.T) {
	external := field([]any{"https://etcd.example"}, "spec", "kubeadmConfigSpec", "clusterConfiguration", "etcd", "external", "endpoints")
	nothing := func(*unstructured.Unstructured) {}
	for name, tc := range map[string]struct {
		edit    func(*unstructured.Unstructured)
		machine client.Object
		message string // empty: it is brought to the image
	}{
		"all are well": {nothing, machine("c1", ""), ""},
		"Cluster API has not acted upon the last change":       {observed(2, 1), nil, "has not acted upon its last change"},
		"a machine is missing":                                 {field(int64(2), "status", "replicas"), nil, "it is to have 3 machines and has 2, of which 3 are ready and 3 up to date"},
		"a machine is one too many":                            {field(int64(4), "status", "replicas"), nil, "has 4"},
		"a machine is not ready":                               {field(int64(2), "status", "readyReplicas"), nil, "2 are ready"},
		"a machine is not up to date":                          {field(int64(2), "status", "upToDateReplicas"), nil, "2 up to date"},
		"there is no status":                                   {func(o *unstructured.Unstructured) { delete(o.Object, "status") }, nil, "has 0"},
		"a component is ill":                                   {conditions("False", "True"), nil, "its condition ControlPlaneComponentsHealthy is False: * Machine cp-1: * is ill"},
		"nothing is known of components":                       {conditions("", "True"), nil, "ControlPlaneComponentsHealthy is not there yet"},
		"a member of etcd is ill":                              {conditions("True", "False"), nil, "EtcdClusterHealthy is False"},
		"a member of etcd can't be asked":                      {conditions("True", "Unknown"), nil, "EtcdClusterHealthy is Unknown"},
		"nothing is known of etcd":                             {conditions("True", ""), nil, "EtcdClusterHealthy is not there yet"},
		"nothing is known of an etcd elsewhere":                {func(o *unstructured.Unstructured) { external(with(o, conditions("True", ""))) }, nil, ""},
		"an etcd elsewhere is ill, which is not Cluster API's": {func(o *unstructured.Unstructured) { external(with(o, conditions("True", "False"))) }, nil, ""},
		"a machine is to be deleted":                           {nothing, machine("c1", clusterv1.DeleteMachineAnnotation), "Machine cp-1 has the annotation cluster.x-k8s.io/delete-machine"},
		"a machine is to be remediated":                        {nothing, machine("c1", clusterv1.RemediateMachineAnnotation), "cluster.x-k8s.io/remediate-machine"},
		"a machine of another Cluster is to be deleted":        {nothing, machine("c2", clusterv1.DeleteMachineAnnotation), ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(basis(), with(controlPlane("base"), tc.edit))
			if tc.machine != nil {
				objects = append(objects, tc.machine)
			}
			w := newWorld(t, objects...)
			w.settle()
			if tc.message == "" {
				require.Equal(t, refitv1.TargetRotated, w.target().State, w.target().Message)
				return
			}
			w.requireStays(controlPlanes, "cp", refitv1.TargetPending,
				"would be deleted without asking refit, so it is brought to the image when all of them are: ", tc.message)
			result, err := w.reconcile()
			require.NoError(t, err)
			require.Equal(t, 2*step, result.RequeueAfter, "nobody tells when they are well")
			w.requireRotatedIfAllowed()
		})
	}
}

// TestControlPlanesThatGetWell are brought to the image then.
func TestControlPlanesThatGetWell(t *testing.T) {
	w := newWorld(t, append(basis(), with(controlPlane("base"), conditions("True", "False")))...)
	w.settle()
	require.Equal(t, refitv1.TargetPending, w.target().State)
	require.NoError(t, w.Update(t.Context(), with(w.object(controlPlanes.gvk, "cp"), conditions("True", "True"))))
	_, err := w.reconcile()
	require.NoError(t, err)
	require.Equal(t, refitv1.TargetRotated, w.target().State)
}

// pinner is a policy by which machines that are labelled so have to be replaced for another image.
func pinner() *refitv1.BootImagePolicy {
	p := keeper()
	p.Spec.Selector.Clusters = metav1.LabelSelector{}
	p.Spec.Selector.Machines.MatchLabels = map[string]string{"pin-image": "true"}
	return p
}

// pinned is a machine of the control plane that somebody has labelled himself.
func pinned() client.Object {
	m := machine("c1", "")
	m.GetLabels()["pin-image"] = "true"
	return m
}

// TestControlPlanesAreJudgedByTheirMachines: Cluster API asks about each, with the labels that it has.
func TestControlPlanesAreJudgedByTheirMachines(t *testing.T) {
	w := newWorld(t, append(basis(), controlPlane("base"), pinner(), pinned())...)
	w.settle()
	require.Equal(t, refitv1.TargetRefused, w.target().State)
	require.Contains(t, w.target().Message, "of Machine cp-1, by its own labels, ")
	require.Zero(t, w.creates)

	require.NoError(t, w.Delete(t.Context(), pinned()))
	require.NoError(t, w.Create(t.Context(), machine("c1", "")))
	_, err := w.reconcile()
	require.NoError(t, err)
	require.Equal(t, refitv1.TargetPending, w.target().State, "others may not know yet that its label is gone")
	w.settle()
	require.Equal(t, refitv1.TargetRotated, w.target().State)
}

// TestOvertakenByAMachine: another replica of refit may know its new label already.
func TestOvertakenByAMachine(t *testing.T) {
	w := newWorld(t, append(basis(), controlPlane("base"), machine("c1", ""))...)
	_, err := w.reconcile()
	require.NoError(t, err)
	w.Clock.Step(settling)
	asked := 0
	w.controller.Updaters = inplace.UpdatersFunc(func(ctx context.Context, s inplace.Subject) (*updaters.Registry, error) {
		if asked++; asked == 2 { // once for the template, then for the machine
			var m clusterv1.Machine
			require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(pinned()), &m))
			m.Labels = pinned().GetLabels()
			require.NoError(t, w.Update(t.Context(), &m))
		}
		return w.updaters(ctx, s)
	})
	_, err = w.reconcile()
	require.NoError(t, err)
	require.Equal(t, refitv1.TargetPending, w.target().State)
	require.Contains(t, w.target().Message, "has changed while refit looked at it")
	require.Zero(t, w.creates)
}
