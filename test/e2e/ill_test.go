//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/system"
)

// illness are the scenarios of nodes that are not ready, which only the in-memory provider can make so while all else works.
var illness = []scenario{
	{"a retry waits while the other control planes are not ready", (*suite).retryWaitsForOthers},
	{"workers that are not ready get the update that may mend them", (*suite).illAreMended},
}

// nodesReady has the Nodes of Machines be ready or not, and waits until Cluster API has seen it.
func (u *suite) nodesReady(ctx context.Context, t *testing.T, ready bool, machines ...string) {
	t.Helper()
	status := "False"
	if ready {
		status = "True"
	}
	var nodes []string
	for _, name := range machines {
		nodes = append(nodes, u.nodeOf(ctx, t, name))
	}
	require.NoError(t, u.Cluster.SetNodesReady(ctx, ready, nodes...))
	eventually(ctx, t, func(ctx context.Context) error {
		for _, name := range machines {
			if is := findCondition(u.machine(ctx, t, name), clusterv1.MachineNodeReadyCondition); string(is.Status) != status {
				return fmt.Errorf("%s of Machine %s is %s: %s", is.Type, name, is.Status, is.Message)
			}
		}
		return nil
	})
}

// unfitUnits puts a unit on nodes that does not start until they are fit, and returns the file that restarts it and what makes a node fit.
func (u *suite) unfitUnits(ctx context.Context, t *testing.T, names ...string) (f bootstrapv1.File, fit func()) {
	t.Helper()
	for _, name := range names {
		u.putUnit(ctx, t, name, failedUnit, "[Service]\nType=oneshot\nExecStart=/usr/bin/test -e "+app+"/fit\n")
	}
	return file("/etc/systemd/system/"+failedUnit+".d/e2e.conf", "[Unit]\nDescription=it fails\n"), func() {
		t.Helper()
		for _, name := range names {
			require.NoError(t, u.Fleet.Node(name).WriteFile(ctx, app+"/fit", nodeFile("fit\n")))
		}
	}
}

// retryWaitsForOthers has the update of a control plane be retried, which would take its API server away, while the two others are ill.
func (u *suite) retryWaitsForOthers(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	all := u.controlPlanes(ctx, t)
	f, fit := u.unfitUnits(ctx, t, all...)
	require.NoError(t, u.Cluster.SetControlPlaneFiles(ctx, f))
	failed := u.anyControlPlane(ctx, t, hasFailed)
	u.nowhere(ctx, t, f.Path)

	others := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == failed.Name })
	u.nodesReady(ctx, t, false, others...)
	fit()
	t.Log(u.refit(ctx, t, "retry", failed.Name))
	waits, err := u.AwaitUpdate(ctx, failed.Name, waiting(refitv1.ReasonSlot))
	require.NoError(t, err)
	require.Contains(t, waits.Status.Message, "etcd needs 2 healthy of 3 nodes to keep its quorum, and these are not")
	for _, name := range others {
		require.Contains(t, waits.Status.Message, u.nodeOf(ctx, t, name)+" (not ready)")
	}
	u.nowhere(ctx, t, f.Path)

	u.nodesReady(ctx, t, true, others...)
	u.rollOut(ctx, t, before)
	for _, name := range all {
		require.NoError(t, u.CheckFile(ctx, name, f))
	}
	require.NoError(t, u.Cluster.SetControlPlaneFiles(ctx))
	u.rollOut(ctx, t, before)
	u.nothingLeft(ctx, t, workload)
}

// illAreMended changes workers of which none is ready: more than may be out, and no reason to leave them so.
func (u *suite) illAreMended(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	all := u.workers(ctx, t)
	f, fit := u.unfitUnits(ctx, t, all...)
	fit()
	// Cluster API itself waits for workers that are not ready, unless as many may be.
	change := func(unavailable int, files ...bootstrapv1.File) {
		require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(md *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
			md.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt(unavailable))
			config.Files = files
		}))
	}
	u.nodesReady(ctx, t, false, all...)
	change(len(all), f)
	for range all { // one after the other, as ever
		mended := u.anyWorker(ctx, t, waiting(refitv1.ReasonNode))
		require.Contains(t, mended.Status.Message, "is not Ready", "it is not done yet")
		require.NoError(t, u.CheckFile(ctx, mended.Name, f))
		u.nodesReady(ctx, t, true, mended.Name)
		_, err := u.AwaitUpdate(ctx, mended.Name, system.Succeeded)
		require.NoError(t, err)
	}
	u.rollOut(ctx, t, before)
	change(1)
	u.rollOut(ctx, t, before)
	u.nothingLeft(ctx, t, workload)
}
