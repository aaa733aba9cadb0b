//go:build e2e

package lab

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/test/process"
)

// TestWorkloadAPI is about the real API server of a cluster of in-memory machines: it has the cluster's nodes, knows Leases and
// evictions, and refit reaches it.
func TestWorkloadAPI(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	lab, err := Start(ctx, Options{Progress: t.Output()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lab.Stop()) })
	cluster, err := lab.CreateCluster(ctx, ClusterOptions{})
	require.NoError(t, err)
	assert.Len(t, process.Children(), len(managers)+3, "etcd, two API servers and the managers")
	workload, err := cluster.WorkloadClient(ctx)
	require.NoError(t, err)

	t.Run("it has the cluster's nodes", func(t *testing.T) { hasNodes(ctx, t, cluster, workload) })
	t.Run("a cordon stays", func(t *testing.T) { cordonStays(ctx, t, cluster, workload) })
	t.Run("a pod runs, and is gone when it is evicted", func(t *testing.T) { podsAreEvicted(ctx, t, cluster, workload) })
	t.Run("refit reaches it, and has no more rights than it is given", func(t *testing.T) { refitReachesIt(ctx, t, lab, cluster) })
	t.Run("a cluster more has one more", func(t *testing.T) {
		one, none := int32(1), int32(0)
		other, err := lab.CreateCluster(ctx, ClusterOptions{Name: "c2", ControlPlaneReplicas: &one, WorkerReplicas: &none})
		require.NoError(t, err)
		workload, err := other.WorkloadClient(ctx)
		require.NoError(t, err)
		hasNodes(ctx, t, other, workload)
		require.NoError(t, other.GrantAccess(ctx), "it can be repeated")
	})
	require.NoError(t, lab.Stop())
	assert.Empty(t, process.Children())
	_, err = lab.CreateCluster(context.WithoutCancel(ctx), ClusterOptions{Name: "late"})
	require.Error(t, err)
	assert.Empty(t, process.Children())
}

func hasNodes(ctx context.Context, t *testing.T, cluster *Cluster, workload client.Client) {
	t.Helper()
	machines, err := cluster.Machines(ctx)
	require.NoError(t, err)
	var nodes corev1.NodeList
	require.NoError(t, workload.List(ctx, &nodes))
	require.Len(t, nodes.Items, len(machines))
	for _, m := range machines {
		n := &corev1.Node{}
		require.NoError(t, workload.Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, n))
		assert.Equal(t, m.Spec.ProviderID, n.Spec.ProviderID)
		assert.Equal(t, m.Spec.Version, n.Status.NodeInfo.KubeletVersion)
		assert.Empty(t, n.Spec.Taints)
		ready := false
		for _, c := range n.Status.Conditions {
			ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		assert.True(t, ready, n.Name)
	}
}

// someNode is the node of a worker.
func someNode(ctx context.Context, t *testing.T, cluster *Cluster) string {
	t.Helper()
	machines, err := cluster.WorkerMachines(ctx)
	require.NoError(t, err)
	return machines[0].Status.NodeRef.Name
}

func cordonStays(ctx context.Context, t *testing.T, cluster *Cluster, workload client.Client) {
	t.Helper()
	name := someNode(ctx, t, cluster)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := []byte(`{"metadata":{"annotations":{"theirs":"yes"}},"spec":{"unschedulable":true}}`)
	require.NoError(t, workload.Patch(ctx, n, client.RawPatch("application/merge-patch+json", patch)))

	// That the mirror has written the node since shows in a label that it brings.
	kubeconfig, err := cluster.providedKubeconfig(ctx)
	require.NoError(t, err)
	provider, _, err := cluster.connect(kubeconfig)
	require.NoError(t, err)
	source := &corev1.Node{}
	require.NoError(t, provider.Get(ctx, client.ObjectKey{Name: name}, source))
	changed := source.DeepCopy()
	metav1.SetMetaDataLabel(&changed.ObjectMeta, "refit-lab/seen", "yes")
	require.NoError(t, provider.Patch(ctx, changed, client.MergeFrom(source)))
	require.Eventually(t, func() bool {
		return workload.Get(ctx, client.ObjectKey{Name: name}, n) == nil && n.Labels["refit-lab/seen"] == "yes"
	}, time.Minute, mirrorEvery)
	assert.True(t, n.Spec.Unschedulable)
	assert.Equal(t, "yes", n.Annotations["theirs"])
	n.Spec.Unschedulable = false
	require.NoError(t, workload.Update(ctx, n))
}

func podsAreEvicted(ctx context.Context, t *testing.T, cluster *Cluster, workload client.Client) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}}
	pod.Spec.NodeName = someNode(ctx, t, cluster)
	pod.Spec.Containers = []corev1.Container{{Name: "db", Image: "db"}}
	require.NoError(t, workload.Create(ctx, pod))
	key := client.ObjectKeyFromObject(pod)
	require.Eventually(t, func() bool {
		return workload.Get(ctx, key, pod) == nil && pod.Status.Phase == corev1.PodRunning
	}, time.Minute, mirrorEvery)
	require.NoError(t, workload.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{}))
	require.Eventually(t, func() bool { return apierrors.IsNotFound(workload.Get(ctx, key, pod)) }, time.Minute, mirrorEvery)
}

func refitReachesIt(ctx context.Context, t *testing.T, lab *Lab, cluster *Cluster) {
	t.Helper()
	secret := &corev1.Secret{}
	require.NoError(t, lab.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Name + "-refit-kubeconfig"}, secret))
	refit, config, err := cluster.connect(secret.Data["value"])
	require.NoError(t, err)
	var nodes corev1.NodeList
	require.NoError(t, refit.List(ctx, &nodes))
	assert.Len(t, nodes.Items, 5)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "medik8s-leases", Name: "node-x"}}
	assert.True(t, apierrors.IsNotFound(refit.Get(ctx, client.ObjectKeyFromObject(lease), lease)))
	err = refit.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "no-such-namespace"}})
	if config.BearerToken == "" {
		t.Log("config/workload is not there: refit is an administrator")
		assert.True(t, apierrors.IsNotFound(err))
		return
	}
	assert.True(t, apierrors.IsForbidden(err), err)
}
