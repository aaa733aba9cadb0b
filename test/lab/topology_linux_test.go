//go:build e2e

package lab

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// TestVersionUpgrade upgrades a cluster with a topology past an extension that holds first its control plane and then its
// workers. What is held is not touched; what is let go is replaced, because nobody says that it can be updated in place.
func TestVersionUpgrade(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	lab, err := Start(ctx, Options{Progress: t.Output()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lab.Stop()) })
	const older, newer = OlderMachineVersion, NewerMachineVersion
	cluster, err := lab.CreateCluster(ctx, ClusterOptions{Topology: true, Version: older})
	require.NoError(t, err)
	gate := registerGatekeeper(ctx, t, lab, "BeforeControlPlaneUpgrade", "BeforeWorkersUpgrade")
	controlPlane, workers := machineUIDs(ctx, t, cluster)
	require.Len(t, controlPlane, 3)
	require.Len(t, workers, 2)

	require.NoError(t, cluster.SetVersion(ctx, newer))
	awaitHeld(ctx, t, cluster, gate, "BeforeControlPlaneUpgrade")
	assertVersions(ctx, t, cluster, older, older)
	held, heldWorkers := machineUIDs(ctx, t, cluster)
	assert.ElementsMatch(t, controlPlane, held)
	assert.ElementsMatch(t, workers, heldWorkers)

	gate.release("BeforeControlPlaneUpgrade")
	awaitHeld(ctx, t, cluster, gate, "BeforeWorkersUpgrade")
	assertVersions(ctx, t, cluster, newer, older)
	upgraded, heldWorkers := machineUIDs(ctx, t, cluster)
	assert.Len(t, upgraded, 3)
	for _, uid := range upgraded {
		assert.NotContains(t, controlPlane, uid)
	}
	assert.ElementsMatch(t, workers, heldWorkers)

	gate.release("BeforeWorkersUpgrade")
	require.NoError(t, cluster.WaitForRollout(ctx))
	assertVersions(ctx, t, cluster, newer, newer)
	assert.Equal(t, upgradeHooks, gate.order())
	assertUpgradeRequests(t, cluster, gate, older, newer)
}

func machineUIDs(ctx context.Context, t *testing.T, cluster *Cluster) (controlPlane, workers []types.UID) {
	t.Helper()
	machines, err := cluster.ControlPlaneMachines(ctx)
	require.NoError(t, err)
	controlPlane = uids(machines)
	machines, err = cluster.WorkerMachines(ctx)
	require.NoError(t, err)
	return controlPlane, uids(machines)
}

func assertVersions(ctx context.Context, t *testing.T, cluster *Cluster, controlPlane, workers string) {
	t.Helper()
	versions, err := cluster.Versions(ctx)
	require.NoError(t, err)
	assert.Equal(t, Versions{ControlPlane: []string{controlPlane}, Workers: []string{workers}}, versions)
}

// awaitHeld waits until hook was called three times, which is long enough for Cluster API to do what it must not, and sees
// that it waited as long as it was told each time, and that it shows people what it waits for.
func awaitHeld(ctx context.Context, t *testing.T, cluster *Cluster, gate *gatekeeper, hook string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(gate.asked(hook)) >= 3 }, 5*time.Minute, 100*time.Millisecond)
	requests := gate.asked(hook)
	for i := range requests[1:] {
		assert.GreaterOrEqual(t, requests[i+1].at.Sub(requests[i].at), heldFor)
	}
	missing, err := cluster.missingTopology(ctx)
	require.NoError(t, err)
	assert.Contains(t, missing, hook+": "+heldMessage)
}

// assertUpgradeRequests sees that each hook was told how far the upgrade is.
func assertUpgradeRequests(t *testing.T, cluster *Cluster, gate *gatekeeper, older, newer string) {
	t.Helper()
	step := []runtimehooksv1.UpgradeStepInfo{{Version: newer}}
	for hook, want := range map[string]upgradeRequest{
		"BeforeClusterUpgrade": {
			FromKubernetesVersion: older, ToKubernetesVersion: newer, ControlPlaneUpgrades: step, WorkersUpgrades: step,
		},
		"BeforeControlPlaneUpgrade": {
			FromKubernetesVersion: older, ToKubernetesVersion: newer, ControlPlaneUpgrades: step, WorkersUpgrades: step,
		},
		"AfterControlPlaneUpgrade": {KubernetesVersion: newer, WorkersUpgrades: step},
		"BeforeWorkersUpgrade":     {FromKubernetesVersion: older, ToKubernetesVersion: newer, WorkersUpgrades: step},
		"AfterWorkersUpgrade":      {KubernetesVersion: newer},
		"AfterClusterUpgrade":      {KubernetesVersion: newer},
	} {
		for _, got := range gate.asked(hook) {
			assert.Equal(t, cluster.Name, got.Cluster.Name, hook)
			assert.Equal(t, newer, got.Cluster.Spec.Topology.Version, hook)
			want.TypeMeta, want.at = got.TypeMeta, got.at
			got.Cluster = clusterv1.Cluster{}
			assert.Equal(t, want, got, hook)
		}
	}
}
