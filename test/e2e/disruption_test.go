//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// withPolicy has a NodeDisruptionPolicy for the cluster's machines as long as the test runs.
func (u *suite) withPolicy(ctx context.Context, t *testing.T, change func(*refitv1.NodeDisruptionPolicySpec)) {
	t.Helper()
	p := &refitv1.NodeDisruptionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: u.Cluster.Namespace, Name: "e2e"}}
	change(&p.Spec)
	require.NoError(t, u.Client.Create(ctx, p))
	t.Cleanup(func() { require.NoError(t, u.Client.Delete(context.WithoutCancel(ctx), p)) })
}

func restarts(unit string) refitv1.Disruption {
	return refitv1.Disruption{Actions: []refitv1.DisruptionAction{{Type: refitv1.RestartDisruption, Unit: unit}}}
}

// policySays has a policy say what a change of a path takes, which takes nothing without it, and has drift repaired.
func (u *suite) policySays(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	before := u.identities(ctx, t)
	pids := map[string]string{}
	for _, name := range u.machines(ctx, t) {
		pids[name] = u.mainPID(ctx, t, name, "demo.service")
	}
	u.withPolicy(ctx, t, func(s *refitv1.NodeDisruptionPolicySpec) {
		s.Files = []refitv1.FileDisruption{{Path: app + "/policy", Disruption: restarts("demo.service")}}
		s.Drift = refitv1.RepairDrift
	})
	f := file(app+"/policy/a", "by policy\n")
	require.NoError(t, u.SetFiles(ctx, f))
	u.rollOut(ctx, t, before)
	for name, pid := range pids {
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		require.Contains(t, mu.Status.Actions, "Restart demo.service")
		require.NotEqual(t, pid, u.mainPID(ctx, t, name, "demo.service"))
	}

	name := u.workers(ctx, t)[0]
	edited := nodeFile("somebody was here\n")
	require.NoError(t, u.Fleet.Node(name).WriteFile(ctx, f.Path, edited))
	t.Log(u.refit(ctx, t, "drift", name, "--now", "--timeout", "10m")) // it may be repaired before the command has seen it
	u.event(ctx, t, "NodeDrifted", func(e *corev1.Event) bool {
		return e.InvolvedObject.Name == name && strings.Contains(e.Message, f.Path)
	})
	_, err := u.AwaitUpdate(ctx, name, func(mu *refitv1.MachineUpdate) bool {
		return mu.Status.Phase == refitv1.PhaseSucceeded && u.CheckFile(ctx, name, f) == nil
	})
	require.NoError(t, err)
	require.NoError(t, u.SetFiles(ctx))
	u.rollOut(ctx, t, before)
}

// brokenArgument has a worker get an argument with which its kubelet does not start.
func (u *suite) brokenArgument(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	u.withPolicy(ctx, t, func(s *refitv1.NodeDisruptionPolicySpec) {
		s.KubeletArguments = new(restarts("kubelet.service"))
		s.KubeletArguments.Timeout = "30s"
	})
	set := func(args ...bootstrapv1.Arg) {
		require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
			config.JoinConfiguration.NodeRegistration.KubeletExtraArgs = args
		}))
	}
	set(bootstrapv1.Arg{Name: "max-pods", Value: new("many")})
	failed := u.anyWorker(ctx, t, func(mu *refitv1.MachineUpdate) bool { return mu.Status.Phase == refitv1.PhaseFailed })
	require.Contains(t, failed.Status.Message, "restart kubelet.service failed")
	require.Contains(t, failed.Status.Message, "put back and kubelet.service restarted")
	flags, err := u.Fleet.Node(failed.Name).ReadFile(ctx, "/var/lib/kubelet/kubeadm-flags.env")
	require.NoError(t, err)
	require.NotContains(t, string(flags.Content), "max-pods")
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		return ready(u.workloadNodes(ctx, t)[failed.Name]), nil
	}), "the Node is Ready as before")

	set() // what was committed stays so: the one Machine is made again
	require.NoError(t, u.Client.Delete(ctx, u.machine(ctx, t, failed.Name)))
	require.NoError(t, u.Cluster.WaitForRollout(ctx))
	after := u.identities(ctx, t)
	for name, uid := range before {
		if name != failed.Name {
			require.Equal(t, uid, after[name], fmt.Sprintf("%s is the same as before", name))
		}
	}
}

func ready(n corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
