//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/test/lab"
)

// upgradeIsHeld upgrades a cluster that is made from a ClusterClass. Its machines have no nodes: nothing of a version is made in
// place yet, so Cluster API replaces them.
func (u *suite) upgradeIsHeld(ctx context.Context, t *testing.T) {
	const older, newer = "v1.36.0", "v1.36.1"
	one := int32(1)
	cluster, err := u.Lab.CreateCluster(ctx, lab.ClusterOptions{
		Backend:   lab.InMemory,
		Namespace: "upgrades", Name: "classy", Version: older, Topology: true, ControlPlaneReplicas: &one, WorkerReplicas: &one,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}}
		require.NoError(t, u.Client.Delete(context.WithoutCancel(ctx), c))
	})
	policies := map[refitv1.Role]*refitv1.ChangeManagementPolicy{}
	for role, name := range map[refitv1.Role]string{refitv1.ControlPlaneRole: "control-plane", refitv1.WorkerRole: "workers"} {
		p := &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}, Spec: restrictive()}
		p.Spec.Selector.Roles = []refitv1.Role{role}
		require.NoError(t, u.Client.Create(ctx, p))
		policies[role] = u.changePolicy(ctx, t, p, func(*refitv1.ChangeManagementPolicySpec) {})
	}
	permissive := func(s *refitv1.ChangeManagementPolicySpec) { s.Strategy = schedule.PermissiveStrategy }

	require.NoError(t, cluster.SetVersion(ctx, newer))
	u.clusterShows(ctx, t, cluster, "policy control-plane is restrictive")
	time.Sleep(16 * time.Second) // Cluster API asks again, and gets the same answer
	u.versions(ctx, t, cluster, []string{older}, []string{older})
	u.upgradeIsPending(ctx, t, cluster, policies[refitv1.ControlPlaneRole])

	u.changePolicy(ctx, t, policies[refitv1.ControlPlaneRole], permissive)
	u.clusterShows(ctx, t, cluster, "policy workers is restrictive")
	u.versions(ctx, t, cluster, []string{newer}, []string{older})

	u.changePolicy(ctx, t, policies[refitv1.WorkerRole], permissive)
	require.NoError(t, cluster.WaitForRollout(ctx))
	u.versions(ctx, t, cluster, []string{newer}, []string{newer})
	u.nothingPending(ctx, t, cluster)
}

// clusterShows demands that Cluster API shows a text in the Cluster's TopologyReconciled condition.
func (u *suite) clusterShows(ctx context.Context, t *testing.T, c *lab.Cluster, text string) {
	t.Helper()
	var last string
	err := poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
		var cluster clusterv1.Cluster
		if err := u.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name}, &cluster); err != nil {
			return false, err
		}
		for _, condition := range cluster.Status.Conditions {
			if condition.Type == clusterv1.ClusterTopologyReconciledCondition {
				last = condition.Message
			}
		}
		return strings.Contains(last, text), nil
	})
	require.NoError(t, err, "the Cluster shows %q and not %q", last, text)
}

func (u *suite) versions(ctx context.Context, t *testing.T, c *lab.Cluster, controlPlane, workers []string) {
	t.Helper()
	v, err := c.Versions(ctx)
	require.NoError(t, err)
	require.Equal(t, lab.Versions{ControlPlane: controlPlane, Workers: workers}, v)
}
