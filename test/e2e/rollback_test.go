//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// brokenUnit never starts.
const brokenUnit = "e2e-broken.service"

func hasFailed(mu *refitv1.MachineUpdate) bool { return mu.Status.Phase == refitv1.PhaseFailed }

// wrongChangeIsTakenBack lets a change fail, on workers and on a control plane, puts the template back, and has the machines follow.
func (u *suite) wrongChangeIsTakenBack(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	workload := u.workload(ctx, t)
	for _, name := range u.machines(ctx, t) {
		u.putUnit(ctx, t, name, brokenUnit, "[Service]\nType=oneshot\nExecStart=/bin/false\n")
	}
	good := file(app+"/good", "good\n")
	before := u.identities(ctx, t)
	require.NoError(t, u.SetFiles(ctx, good))
	u.rollOut(ctx, t, before)

	bad := file("/etc/systemd/system/"+brokenUnit+".d/e2e.conf", "[Unit]\nDescription=it fails\n")
	u.rollBackWorkers(ctx, t, good, bad)
	u.rollOut(ctx, t, before)
	require.NoError(t, u.Cluster.SetControlPlaneFiles(ctx, good, bad))
	failed := u.anyControlPlane(ctx, t, hasFailed)
	require.NoError(t, u.Cluster.SetControlPlaneFiles(ctx, good))
	u.rolledBack(ctx, t, failed.Name)
	u.rollOut(ctx, t, before)

	u.everywhere(ctx, t, good)
	u.nowhere(ctx, t, bad.Path)
	u.nothingLeft(ctx, t, workload)
}

// rollBackWorkers has one worker fail and the other one wait for its slot, points the MachineDeployment to its former template, and
// has both follow.
func (u *suite) rollBackWorkers(ctx context.Context, t *testing.T, good, bad bootstrapv1.File) {
	t.Helper()
	former := ""
	together := func(n int32) {
		require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(md *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
			md.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(n))
			if ref := &md.Spec.Template.Spec.Bootstrap.ConfigRef; former != "" {
				ref.Name = former
			} else {
				former = ref.Name
				config.Files = []bootstrapv1.File{good, bad}
			}
		}))
	}
	together(2)
	failed := u.anyWorker(ctx, t, hasFailed)
	second := u.anyWorker(ctx, t, waiting(refitv1.ReasonSlot))
	require.Contains(t, failed.Status.Message, "refit rollback -n "+failed.Namespace+" "+failed.Name)
	cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "bin", "refit"), "rollback", failed.Name, "--kubeconfig", u.Lab.Kubeconfig, "-n", u.Cluster.Namespace)
	output, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), "wants what the Machine has already")
	together(2)
	u.rolledBack(ctx, t, failed.Name)
	u.rolledBack(ctx, t, second.Name)
	together(1)
}

// rolledBack has a Machine follow its template, and waits until its node does.
func (u *suite) rolledBack(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	t.Log(u.refit(ctx, t, "rollback", name))
	mu, err := u.AwaitUpdate(ctx, name, func(mu *refitv1.MachineUpdate) bool {
		return mu.Status.Phase == refitv1.PhaseSucceeded && mu.Status.ObservedDigest == mu.Spec.Digest
	})
	require.NoError(t, err)
	require.Equal(t, refitv1.RollbackWritten, mu.Status.Rollback.State)
	require.Nil(t, mu.Status.Slot)
}

// bothAreCured has a wrong change make all workers not ready, one after the other, and leave them so. Then the template is put back, and both
// follow it, though more are out than may be.
func (u *suite) bothAreCured(ctx context.Context, t *testing.T) {
	workload, before, former := u.workload(ctx, t), u.identities(ctx, t), ""
	bad := file("/etc/systemd/system/kubelet.service.d/99-e2e.conf", "[Service]\nExecStartPre=/bin/false\n")
	u.withPolicy(ctx, t, func(s *refitv1.NodeDisruptionPolicySpec) { s.OnFailure = refitv1.StopOnFailure })
	change := func(unavailable int32, edit func(*clusterv1.MachineDeployment, *bootstrapv1.KubeadmConfigSpec)) {
		require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(md *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
			md.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(unavailable))
			edit(md, config)
		}))
	}
	change(2, func(md *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
		former = md.Spec.Template.Spec.Bootstrap.ConfigRef.Name
		config.Files = append(config.Files, bad)
	})
	first := u.anyWorker(ctx, t, hasFailed).Name
	u.notReady(ctx, t, first)
	second := u.workers(ctx, t)[0]
	if second == first {
		second = u.workers(ctx, t)[1]
	}
	// It would wait, as long as it is well and the first one is not.
	u.exec(ctx, t, second, "systemctl", "stop", "kubelet.service")
	u.notReady(ctx, t, second)
	t.Log(u.refit(ctx, t, "abandon", first))
	_, err := u.AwaitUpdate(ctx, second, hasFailed)
	require.NoError(t, err)
	for _, name := range []string{first, second} {
		require.NoError(t, u.CheckFile(ctx, name, bad))
		u.notReady(ctx, t, name)
	}

	change(2, func(md *clusterv1.MachineDeployment, _ *bootstrapv1.KubeadmConfigSpec) {
		md.Spec.Template.Spec.Bootstrap.ConfigRef.Name = former
	})
	u.rolledBack(ctx, t, first)
	u.rolledBack(ctx, t, second)
	change(1, func(*clusterv1.MachineDeployment, *bootstrapv1.KubeadmConfigSpec) {})
	u.rollOut(ctx, t, before)
	u.nowhere(ctx, t, bad.Path)
	u.nothingLeft(ctx, t, workload)
}

// notReady waits until a Machine's Node is not ready.
func (u *suite) notReady(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	eventually(ctx, t, func(ctx context.Context) error {
		if is := findCondition(u.machine(ctx, t, name), clusterv1.MachineNodeReadyCondition); is.Status == metav1.ConditionTrue {
			return fmt.Errorf("the Node of Machine %s is ready", name)
		}
		return nil
	})
}
