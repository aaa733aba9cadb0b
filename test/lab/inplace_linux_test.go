//go:build e2e

package lab

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// TestInPlaceUpdate has Cluster API's own extension say yes to a change, and sees that no machine is replaced: the lab's
// cluster is one that refit can be tried on.
func TestInPlaceUpdate(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	lab, err := Start(ctx, Options{Progress: t.Output()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lab.Stop()) })
	cluster, err := lab.CreateCluster(ctx, ClusterOptions{})
	require.NoError(t, err)
	registerReferenceExtension(ctx, t, lab)
	before, err := cluster.Machines(ctx)
	require.NoError(t, err)

	file := bootstrapv1.File{Path: "/etc/demo.conf", Content: "changed\n", Owner: "root:root", Permissions: "0644"}
	require.NoError(t, cluster.SetControlPlaneFiles(ctx, file))
	require.NoError(t, cluster.SetWorkerFiles(ctx, file))
	require.NoError(t, cluster.WaitForRollout(ctx))

	after, err := cluster.Machines(ctx)
	require.NoError(t, err)
	assert.ElementsMatch(t, uids(before), uids(after))
	for _, machine := range after {
		var config bootstrapv1.KubeadmConfig
		key := types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name}
		require.NoError(t, lab.Client.Get(ctx, key, &config))
		assert.Equal(t, []bootstrapv1.File{file}, config.Spec.Files, "%s", machine.Name)
	}
}

func uids(machines []clusterv1.Machine) []types.UID {
	var uids []types.UID
	for _, machine := range machines {
		uids = append(uids, machine.UID)
	}
	return uids
}

// registerReferenceExtension starts the extension beside the lab and makes it known to the managers.
func registerReferenceExtension(ctx context.Context, t *testing.T, lab *Lab) {
	t.Helper()
	binaries, err := Build(ctx, t.Output(), ReferenceExtension)
	require.NoError(t, err)
	free, err := FreePorts(3)
	require.NoError(t, err)
	certs := envtest.WebhookInstallOptions{LocalServingHost: loopback, LocalServingPort: free[0]}
	t.Cleanup(func() { assert.NoError(t, certs.Cleanup()) })
	require.NoError(t, certs.PrepWithoutInstalling())

	extension := manager{program: ReferenceExtension, prefix: "test-extension-"}
	args := extension.args(lab.Kubeconfig, certs.LocalServingCertDir, ports{free[0], free[1], free[2]})
	started, err := lab.launcher.Start(string(ReferenceExtension), filepath.Join(t.TempDir(), "log"),
		binaries[ReferenceExtension], args, extension.env())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, started.Stop(stopGrace)) })
	require.NoError(t, waitHealthy(ctx, started, free[1]))

	require.NoError(t, lab.Client.Create(ctx, &runtimev1.ExtensionConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "reference"},
		Spec: runtimev1.ExtensionConfigSpec{
			ClientConfig: runtimev1.ClientConfig{
				URL: "https://" + loopbackAddress(free[0]), CABundle: certs.LocalServingCAData,
			},
			NamespaceSelector: &metav1.LabelSelector{},
		},
	}))
	require.NoError(t, lab.WaitForExtension(ctx, "reference"))
}
