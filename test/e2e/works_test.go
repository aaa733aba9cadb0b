//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// nodesThatWork are the scenarios of what a node does, beside what is written on it.
var nodesThatWork = []scenario{
	{"a file that takes the CRI from containerd is taken back, and the next worker is not touched", (*suite).runtimeTakenBack},
	{"a file that locks refit out by sshd is taken back by the node itself, and the next worker is not touched", (*suite).lockedOut},
	{"a node is watched after its containerd was restarted, before the next one is taken", (*suite).watched},
}

// containerdConfig is a file that every node has.
const containerdConfig = "/etc/containerd/config.toml"

// workersFile has the workers have a file beside those that they have, and returns what takes it away again.
func (u *suite) workersFile(ctx context.Context, t *testing.T, f bootstrapv1.File) (takeAway func()) {
	t.Helper()
	same := func(other bootstrapv1.File) bool { return other.Path == f.Path }
	require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
		config.Files = append(slices.DeleteFunc(config.Files, same), f)
	}))
	return func() {
		t.Helper()
		require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
			config.Files = slices.DeleteFunc(config.Files, same)
		}))
	}
}

// runtimeTakenBack has a file turn the CRI of a worker's containerd off, which runs all the same.
func (u *suite) runtimeTakenBack(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	configs, pids := map[string]string{}, map[string]string{}
	for _, name := range u.workers(ctx, t) {
		is, err := u.Fleet.Node(name).ReadFile(ctx, containerdConfig)
		require.NoError(t, err)
		configs[name], pids[name] = string(is.Content), u.mainPID(ctx, t, name, "containerd.service")
	}
	u.withPolicy(ctx, t, func(s *refitv1.NodeDisruptionPolicySpec) { s.Soak = "30s" })
	takeAway := u.workersFile(ctx, t, file(containerdConfig, "disabled_plugins = [\"cri\"]\n"))
	failed := u.anyWorker(ctx, t, func(mu *refitv1.MachineUpdate) bool { return mu.Status.Phase == refitv1.PhaseFailed })
	require.Contains(t, failed.Status.Message, "the container runtime worked before and does not now")
	require.Contains(t, failed.Status.Message, "put back and containerd.service restarted")

	for name, config := range configs {
		is, err := u.Fleet.Node(name).ReadFile(ctx, containerdConfig)
		require.NoError(t, err)
		require.Equal(t, config, string(is.Content), "%s has what it had", name)
		if name != failed.Name {
			require.Equal(t, pids[name], u.mainPID(ctx, t, name, "containerd.service"), "containerd of %s was not touched", name)
		}
	}
	_, err := u.Fleet.Node(failed.Name).Exec(ctx, "crictl", "info")
	require.NoError(t, err, "the CRI answers")
	left, err := u.Fleet.Node(failed.Name).Exec(ctx, "crictl", "pods", "--quiet", "--name", "refit-probe")
	require.NoError(t, err)
	require.Empty(t, left, "no sandbox of refit's is left")
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		for name, n := range u.workloadNodes(ctx, t) {
			if !ready(n) {
				return false, fmt.Errorf("%s is not Ready", name)
			}
		}
		return true, nil
	}))

	takeAway() // what was committed stays so: the one Machine is made again
	require.NoError(t, u.Client.Delete(ctx, u.machine(ctx, t, failed.Name)))
	require.NoError(t, u.Cluster.WaitForRollout(ctx))
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		return !slices.ContainsFunc(u.machines(ctx, t), func(name string) bool { return u.Fleet.Node(name) == nil }), nil
	}), "the new machine has no node")
	after := u.identities(ctx, t)
	for name, uid := range before {
		if name != failed.Name {
			require.Equal(t, uid, after[name], "%s is the same as before", name)
		}
	}
}

// watched has the workers' containerd restarted, and looks at what is watched after it.
func (u *suite) watched(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	u.withPolicy(ctx, t, func(s *refitv1.NodeDisruptionPolicySpec) { s.Soak = "20s" })
	f := file("/etc/containerd/conf.d/e2e-watched.toml", "version = 2\n")
	takeAway := u.workersFile(ctx, t, f)
	first := u.anyWorker(ctx, t, func(mu *refitv1.MachineUpdate) bool { return mu.Status.Step == "watch the node" })
	require.Contains(t, first.Status.Message, "the node works; it is watched for 20s whether it goes on to")
	for _, name := range u.workers(ctx, t) {
		if name != first.Name {
			require.Error(t, u.CheckFile(ctx, name, f), "the slot is taken until the first one has succeeded")
		}
	}
	u.rollOut(ctx, t, before)
	takeAway()
	u.rollOut(ctx, t, before)
}

// lockedOut has a file of sshd's lock everybody out of a worker. Nobody but the node itself can put it back.
func (u *suite) lockedOut(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	u.withPolicy(ctx, t, func(s *refitv1.NodeDisruptionPolicySpec) { s.ConfirmWithin = "30s" })
	f := file("/etc/ssh/sshd_config.d/05-e2e.conf", "AllowUsers nobody\n")
	takeAway := u.workersFile(ctx, t, f)
	failed := u.anyWorker(ctx, t, hasFailed)
	require.Contains(t, failed.Status.Message, "refit could not log in to the node any more; the files were put back")
	u.nowhere(ctx, t, f.Path)
	takeAway()
	u.rolledBack(ctx, t, failed.Name)
	u.rollOut(ctx, t, before)
	u.nowhere(ctx, t, f.Path)
}
