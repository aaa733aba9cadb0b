//go:build e2e

package lab

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-refit/refit/test/process"
)

func TestMain(m *testing.M) {
	// envtest logs through controller-runtime, which complains if nobody says where to.
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestLab starts a lab with a cluster, rolls a change out to all machines, and sees that Stop leaves no process behind. No
// extension is registered, so the change is rolled out the ordinary way: every machine is replaced.
func TestLab(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	lab, err := Start(ctx, Options{Progress: t.Output()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lab.Stop()) })
	started := process.Children()
	assert.Len(t, started, len(managers)+2, "etcd, kube-apiserver and the managers")

	cluster, err := lab.CreateCluster(ctx, ClusterOptions{})
	require.NoError(t, err)
	before, err := cluster.Machines(ctx)
	require.NoError(t, err)
	assert.Len(t, before, 5)

	file := bootstrapv1.File{Path: "/etc/demo.conf", Content: "changed\n", Owner: "root:root", Permissions: "0644"}
	require.NoError(t, cluster.SetControlPlaneFiles(ctx, file))
	require.NoError(t, cluster.SetWorkerFiles(ctx, file))
	require.NoError(t, cluster.WaitForRollout(ctx))
	after, err := cluster.Machines(ctx)
	require.NoError(t, err)
	assert.Len(t, after, 5)
	for _, machine := range after {
		assert.False(t, slices.ContainsFunc(before, func(m clusterv1.Machine) bool { return m.UID == machine.UID }),
			"%s was not replaced", machine.Name)
	}

	require.NoError(t, lab.Stop())
	require.NoError(t, lab.Stop(), "twice is once")
	for _, pid := range started {
		assert.False(t, process.Alive(pid), "process %d is still there", pid)
	}
	assert.Empty(t, process.Children())
	assert.NoDirExists(t, lab.LogDir)
}

// TestStartInterrupted ends the context while things are being started.
func TestStartInterrupted(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 3 * time.Second} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, err := Start(ctx, Options{Dir: t.TempDir(), Progress: t.Output()})
		cancel()
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Empty(t, process.Children())
	}
}

// TestStartFails has a manager refuse its arguments.
func TestStartFails(t *testing.T) {
	_, err := Start(t.Context(), Options{
		Dir: t.TempDir(), Progress: t.Output(), ManagerArgs: map[Program][]string{CoreManager: {"--no-such-flag"}},
	})
	assert.ErrorContains(t, err, "core-manager ended unexpectedly (exit status 2)")
	assert.ErrorContains(t, err, "unknown flag: --no-such-flag")
	assert.Empty(t, process.Children())
}
