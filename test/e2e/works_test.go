//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// nodesThatWork are the scenarios of what a node does, beside what is written on it.
var nodesThatWork = []scenario{
	{"a file that takes the CRI from containerd is taken back, and the next worker is not touched", (*suite).runtimeTakenBack},
	{"a file that locks refit out by sshd is taken back by the node itself, and the next worker is not touched", (*suite).lockedOut},
	{"a file of the network that cuts a node off is taken back by the node itself, and the next worker is not touched", (*suite).cutOff},
	{"a node is watched after its containerd was restarted, before the next one is taken", (*suite).watched},
	{"a kernel parameter is in effect and goes again, and a kernel argument is in what the genuine update-grub makes", (*suite).kernelSettings},
	{"an audit policy that changes is the one that the API servers run with", (*suite).auditPolicy}, // no scenario that sets all files comes later
}

// containerdConfig is a file that every node has.
const containerdConfig = "/etc/containerd/config.toml"

// workersFiles has the workers have files beside those that they have, in one change, and returns what takes them away again.
func (u *suite) workersFiles(ctx context.Context, t *testing.T, files ...bootstrapv1.File) (takeAway func()) {
	t.Helper()
	same := func(other bootstrapv1.File) bool {
		return slices.ContainsFunc(files, func(f bootstrapv1.File) bool { return other.Path == f.Path })
	}
	require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
		config.Files = append(slices.DeleteFunc(config.Files, same), files...)
	}))
	return func() {
		t.Helper()
		require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
			config.Files = slices.DeleteFunc(config.Files, same)
		}))
	}
}

// touchedOnly demands that of the workers nothing was done since a time but on the one that has failed.
func (u *suite) touchedOnly(ctx context.Context, t *testing.T, failed *refitv1.MachineUpdate, since time.Time) {
	t.Helper()
	require.NotNil(t, failed.Status.Slot, "it keeps its slot")
	require.NotEmpty(t, u.journalSince(ctx, t, failed.Name, since))
	for _, name := range u.workers(ctx, t) {
		if name != failed.Name {
			require.Empty(t, u.journalSince(ctx, t, name, since), "%s is touched only when %s has succeeded", name, failed.Name)
		}
	}
}

// inTurn demands that machines were updated one after the other since a time, by the journals on their nodes: that nothing was done on one of
// them until the one before had been watched for the soak.
func (u *suite) inTurn(ctx context.Context, t *testing.T, machines []string, since time.Time, soak time.Duration) {
	t.Helper()
	journals, machines := map[string][]node.JournalEntry{}, slices.Clone(machines)
	for _, name := range machines {
		journals[name] = u.journalSince(ctx, t, name, since)
		require.NotEmpty(t, journals[name], name)
	}
	slices.SortFunc(machines, func(a, b string) int { return journals[a][0].Time.Compare(journals[b][0].Time) })
	var watched time.Time
	for _, name := range machines {
		require.True(t, journals[name][0].Time.After(watched), "%s was touched before the one before had soaked", name)
		var begun time.Time
		for _, e := range journals[name] {
			switch {
			case e.Step == watchStep && e.Event == "step-started":
				begun = e.Time
			case e.Step == watchStep && e.Event == "step-done":
				watched = e.Time
			}
		}
		require.False(t, begun.IsZero(), "%s was not watched", name)
		require.GreaterOrEqual(t, watched.Sub(begun), soak, "%s was not watched for the soak", name)
	}
}

// watchStep is the step of a run in which the node is watched for the soak.
const watchStep = "watch the node"

// runtimeTakenBack has a file turn the CRI of a worker's containerd off, which runs all the same.
func (u *suite) runtimeTakenBack(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	configs, pids := map[string]string{}, map[string]string{}
	for _, name := range u.workers(ctx, t) {
		is, err := u.Fleet.Node(name).ReadFile(ctx, containerdConfig)
		require.NoError(t, err)
		configs[name], pids[name] = string(is.Content), u.mainPID(ctx, t, name, "containerd.service")
	}
	asked := time.Now()
	takeAway := u.workersFiles(ctx, t, file(containerdConfig, "disabled_plugins = [\"cri\"]\n"))
	failed := u.anyWorker(ctx, t, hasFailed)
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

	u.touchedOnly(ctx, t, failed, asked)
	u.takenBack(ctx, t, before, failed, takeAway)
}

// takenBack has the owner of the workers take a change back that has failed on one of them, and the Machine follow by refit rollback. Nobody
// has to see to the node, which has put itself back.
func (u *suite) takenBack(ctx context.Context, t *testing.T, before map[string]types.UID, failed *refitv1.MachineUpdate, takeAway func()) {
	t.Helper()
	takeAway()
	u.rolledBack(ctx, t, failed.Name)
	u.rollOut(ctx, t, before)
	u.nothingLeft(ctx, t, u.workload(ctx, t))
}

// watched has the workers' containerd restarted, and looks at what is watched after it.
func (u *suite) watched(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	u.withPolicy(ctx, t, func(s *refitv1.NodeDisruptionPolicySpec) { s.Soak = "20s" })
	f := file("/etc/containerd/conf.d/e2e-watched.toml", "version = 3\n")
	asked := time.Now()
	takeAway := u.workersFiles(ctx, t, f)
	first := u.anyWorker(ctx, t, func(mu *refitv1.MachineUpdate) bool { return mu.Status.Step == watchStep })
	require.Contains(t, first.Status.Message, "the node works; it is watched for 20s whether it goes on to")
	u.rollOut(ctx, t, before)
	u.inTurn(ctx, t, u.workers(ctx, t), asked, 20*time.Second)
	takeAway()
	u.rollOut(ctx, t, before)
}

// lockedOut has a file of sshd's lock everybody out of a worker. Nobody but the node itself can put it back.
func (u *suite) lockedOut(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	u.withPolicy(ctx, t, func(s *refitv1.NodeDisruptionPolicySpec) { s.ConfirmWithin = "30s" })
	f := file("/etc/ssh/sshd_config.d/05-e2e.conf", "AllowUsers nobody\n")
	asked := time.Now()
	takeAway := u.workersFiles(ctx, t, f)
	failed := u.anyWorker(ctx, t, hasFailed)
	require.Contains(t, failed.Status.Message, "refit could not log in to the node any more; the files were put back")
	u.nowhere(ctx, t, f.Path)
	u.touchedOnly(ctx, t, failed, asked)
	u.takenBack(ctx, t, before, failed, takeAway)
	u.nowhere(ctx, t, f.Path)
}
