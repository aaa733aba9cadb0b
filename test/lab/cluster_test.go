package lab

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestRenderCluster(t *testing.T) {
	for name, test := range map[string]struct {
		options      ClusterOptions
		cluster      string
		controlPlane int64
		maxSurge     int64
		workers      int64
		version      string
	}{
		"the zero value is three and two, all of them updated in place": {
			cluster: "lab/c1", controlPlane: 3, workers: 2, version: "v1.36.0",
		},
		"a single control-plane machine needs a surge": {
			options: ClusterOptions{ControlPlaneReplicas: new(int32(1)), WorkerReplicas: new(int32(0))},
			cluster: "lab/c1", controlPlane: 1, maxSurge: 1, version: "v1.36.0",
		},
		"everything can be chosen": {
			options: ClusterOptions{
				Namespace: "fleet", Name: "reef", Version: "v1.35.1",
				ControlPlaneReplicas: new(int32(5)), WorkerReplicas: new(int32(7)),
			},
			cluster: "fleet/reef", controlPlane: 5, workers: 7, version: "v1.35.1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := renderCluster(test.options.withDefaults(InMemory, "v1.35.4"), nil)
			require.NoError(t, err)
			byKind := map[string]*unstructured.Unstructured{}
			for _, object := range objects {
				byKind[object.GetKind()] = object
			}
			cluster := byKind["Cluster"]
			assert.Equal(t, test.cluster, cluster.GetNamespace()+"/"+cluster.GetName())
			assert.Equal(t, cluster.GetNamespace(), byKind["Namespace"].GetName())

			controlPlane := byKind["KubeadmControlPlane"].Object
			assertField(t, controlPlane, test.controlPlane, "spec", "replicas")
			assertField(t, controlPlane, test.version, "spec", "version")
			assertField(t, controlPlane, test.maxSurge, "spec", "rollout", "strategy", "rollingUpdate", "maxSurge")

			workers := byKind["MachineDeployment"].Object
			assertField(t, workers, test.workers, "spec", "replicas")
			assertField(t, workers, test.version, "spec", "template", "spec", "version")
			assertField(t, workers, int64(0), "spec", "rollout", "strategy", "rollingUpdate", "maxSurge")
		})
	}
}

func TestRenderTopology(t *testing.T) {
	options := ClusterOptions{Topology: true, Version: "v1.35.1", ControlPlaneReplicas: new(int32(1)), WorkerReplicas: new(int32(4))}
	objects, err := renderCluster(options.withDefaults(InMemory, "v1.35.4"), nil)
	require.NoError(t, err)
	byKind := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		byKind[object.GetKind()] = object
	}
	assert.NotContains(t, byKind, "KubeadmControlPlane", "the topology makes it")
	assert.NotContains(t, byKind, "MachineDeployment", "the topology makes it")

	topology, _, err := unstructured.NestedMap(byKind["Cluster"].Object, "spec", "topology")
	require.NoError(t, err)
	assertField(t, topology, byKind["ClusterClass"].GetName(), "classRef", "name")
	assertField(t, topology, "v1.35.1", "version")
	assertField(t, topology, int64(1), "controlPlane", "replicas")
	assertField(t, byKind["KubeadmControlPlaneTemplate"].Object, int64(1),
		"spec", "template", "spec", "rollout", "strategy", "rollingUpdate", "maxSurge")
	workers, _, err := unstructured.NestedSlice(topology, "workers", "machineDeployments")
	require.NoError(t, err)
	require.Len(t, workers, 1)
	assertField(t, workers[0].(map[string]any), int64(4), "replicas")
}

func TestDockerClusterNamesItsImages(t *testing.T) {
	objects, err := renderCluster(ClusterOptions{}.withDefaults(Docker, "v1.35.4"), map[string]any{
		"Image": "machine:1", "LoadBalancerRepository": "example.com", "LoadBalancerTag": "2", "AuthorizedKey": "ssh-ed25519 AAAA",
	})
	require.NoError(t, err)
	templates := 0
	for _, object := range objects {
		if object.GetKind() == "DevMachineTemplate" {
			templates++
			assertField(t, object.Object, "machine:1", "spec", "template", "spec", "backend", "docker", "customImage")
		}
		if object.GetKind() == "KubeadmControlPlane" {
			assertField(t, object.Object, "v1.35.4", "spec", "version")
		}
	}
	assert.Equal(t, 2, templates)
}

func assertField(t *testing.T, object map[string]any, want any, path ...string) {
	t.Helper()
	got, found, err := unstructured.NestedFieldNoCopy(object, path...)
	require.NoError(t, err)
	require.True(t, found, "no %v", path)
	assert.Equal(t, want, got, "%v", path)
}

func TestMissingMachines(t *testing.T) {
	const settled = "1 of 2 workers are available and up to date"
	for name, test := range map[string]struct {
		change func(*clusterv1.Machine)
		want   string
	}{
		"nothing is missing":        {func(*clusterv1.Machine) {}, ""},
		"one is still provisioning": {func(m *clusterv1.Machine) { m.Status.Phase = "Provisioning" }, settled},
		"one has no node":           {func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" }, settled},
		"one is not available":      {func(m *clusterv1.Machine) { m.Status.Conditions[0].Status = "False" }, settled},
		"one is not up to date":     {func(m *clusterv1.Machine) { m.Status.Conditions[1].Status = "Unknown" }, settled},
		"one is going":              {func(m *clusterv1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, settled},
		"one is being updated in place": {
			func(m *clusterv1.Machine) {
				m.Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: ""}
			},
			settled + ", 1 being updated in place",
		},
	} {
		t.Run(name, func(t *testing.T) {
			machines := []clusterv1.Machine{settledMachine(), settledMachine()}
			test.change(&machines[1])
			assert.Equal(t, test.want, missingMachines("workers", machines, 2))
		})
	}
	t.Run("one is too many", func(t *testing.T) {
		assert.NotEmpty(t, missingMachines("workers", []clusterv1.Machine{settledMachine(), settledMachine()}, 1))
	})
	t.Run("none are wanted", func(t *testing.T) {
		assert.Empty(t, missingMachines("workers", nil, 0))
	})
}

func TestMissingTopology(t *testing.T) {
	const unseen = "the topology's change is not seen yet"
	reconciled := metav1.Condition{Type: clusterv1.ClusterTopologyReconciledCondition, Status: "True", ObservedGeneration: 2}
	held := reconciled
	held.Status, held.Message = "False", "Cluster is upgrading"
	for name, test := range map[string]struct {
		class      string
		generation int64
		conditions []metav1.Condition
		want       string
	}{
		"nothing is missing":          {"c1", 2, []metav1.Condition{reconciled}, ""},
		"there is no topology":        {"", 2, nil, ""},
		"nobody has looked at it yet": {"c1", 1, nil, unseen},
		"it was changed since":        {"c1", 3, []metav1.Condition{reconciled}, unseen},
		"an upgrade goes on":          {"c1", 2, []metav1.Condition{held}, "Cluster is upgrading"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &clusterv1.Cluster{}
			cluster.Generation, cluster.Status.Conditions = test.generation, test.conditions
			cluster.Spec.Topology.ClassRef.Name = test.class
			assert.Equal(t, test.want, missingTopology(cluster))
		})
	}
}

func TestVersions(t *testing.T) {
	machine := func(version string) clusterv1.Machine {
		return clusterv1.Machine{Spec: clusterv1.MachineSpec{Version: version}}
	}
	assert.Empty(t, versions(nil))
	assert.Equal(t, []string{"v1.36.1", "v1.36.3"},
		versions([]clusterv1.Machine{machine("v1.36.3"), machine("v1.36.1"), machine("v1.36.3")}))
}

func settledMachine() clusterv1.Machine {
	return clusterv1.Machine{Status: clusterv1.MachineStatus{
		Phase:   string(clusterv1.MachinePhaseRunning),
		NodeRef: clusterv1.MachineNodeReference{Name: "node"},
		Conditions: []metav1.Condition{
			{Type: clusterv1.MachineAvailableCondition, Status: metav1.ConditionTrue},
			{Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionTrue},
		},
	}}
}
