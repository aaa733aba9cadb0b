//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/controllers/external"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/node/remote"
)

// configure changes the configuration of all machines. That is one change for the control plane and one for the workers.
func (u *suite) configure(ctx context.Context, change func(*bootstrapv1.KubeadmConfigSpec)) error {
	return errors.Join(
		u.Cluster.ChangeControlPlane(ctx, func(kcp *controlplanev1.KubeadmControlPlane) { change(&kcp.Spec.KubeadmConfigSpec) }),
		u.Cluster.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
			made := config.InitConfiguration // workers only join
			change(config)
			config.InitConfiguration = made
		}),
	)
}

// registrations are how the nodes of a configuration register. The first machine of a control plane has the one for init, all
// others that for join.
func registrations(config *bootstrapv1.KubeadmConfigSpec) []*bootstrapv1.NodeRegistrationOptions {
	return []*bootstrapv1.NodeRegistrationOptions{&config.InitConfiguration.NodeRegistration, &config.JoinConfiguration.NodeRegistration}
}

func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	return signer
}

// operator is an account that the scenarios have come and go.
const operator = "operator"

// logsIn reports whether the operator gets in to each of the nodes with a key.
func (u *suite) logsIn(ctx context.Context, t *testing.T, key ssh.Signer) []bool {
	t.Helper()
	var in []bool
	for _, name := range u.machines(ctx, t) {
		to, err := u.Fleet.Node(name).Target()
		require.NoError(t, err)
		to.User, to.Signers, to.PrivateKey = operator, []ssh.Signer{key}, nil
		c, err := remote.SSHDialer{}.Dial(ctx, to)
		if err == nil {
			require.NoError(t, c.Close())
		}
		in = append(in, err == nil)
	}
	return in
}

// workloadNodes are the Nodes of the cluster, by Machine.
func (u *suite) workloadNodes(ctx context.Context, t *testing.T) map[string]corev1.Node {
	t.Helper()
	workload, err := u.Cluster.WorkloadClient(ctx)
	require.NoError(t, err)
	machines, err := u.Cluster.Machines(ctx)
	require.NoError(t, err)
	out := map[string]corev1.Node{}
	for _, m := range machines {
		var n corev1.Node
		require.NoError(t, workload.Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, &n))
		out[m.Name] = n
	}
	return out
}

// otherFields has users, time servers, labels and taints come, change and go, on control planes and workers.
func (u *suite) otherFields(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	before := u.identities(ctx, t)
	first, second := newKey(t), newKey(t)
	withKey := func(key ssh.Signer) []bootstrapv1.User {
		return []bootstrapv1.User{{
			Name: operator, Shell: "/bin/sh", SSHAuthorizedKeys: []string{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey())))},
		}}
	}
	taint := corev1.Taint{Key: "refit-e2e", Value: "one", Effect: corev1.TaintEffectPreferNoSchedule}
	require.NoError(t, u.configure(ctx, func(config *bootstrapv1.KubeadmConfigSpec) {
		config.Users = withKey(first)
		config.NTP = bootstrapv1.NTP{Enabled: new(true), Servers: []string{"192.0.2.1"}}
		for _, r := range registrations(config) {
			r.Taints = &[]corev1.Taint{taint}
			r.KubeletExtraArgs = append(r.KubeletExtraArgs, bootstrapv1.Arg{Name: "node-labels", Value: new("e2e.refit/disk=fast")})
		}
	}))
	u.rollOut(ctx, t, before)
	require.NotContains(t, u.logsIn(ctx, t, first), false)
	for name, n := range u.workloadNodes(ctx, t) {
		require.Equal(t, "fast", n.Labels["e2e.refit/disk"], name)
		require.Contains(t, n.Spec.Taints, taint, name)
		out, err := u.Fleet.Node(name).Exec(ctx, "timedatectl", "show-timesync", "--property=SystemNTPServers", "--value")
		require.NoError(t, err)
		require.Equal(t, "192.0.2.1", strings.TrimSpace(string(out)), name)
	}

	require.NoError(t, u.configure(ctx, func(config *bootstrapv1.KubeadmConfigSpec) { config.Users = withKey(second) }))
	u.rollOut(ctx, t, before)
	require.NotContains(t, u.logsIn(ctx, t, second), false)
	require.NotContains(t, u.logsIn(ctx, t, first), true, "a key that is revoked lets nobody in")

	require.NoError(t, u.configure(ctx, func(config *bootstrapv1.KubeadmConfigSpec) {
		config.Users, config.NTP = nil, bootstrapv1.NTP{}
		for _, r := range registrations(config) {
			r.Taints = nil
			r.KubeletExtraArgs = slices.DeleteFunc(r.KubeletExtraArgs, func(a bootstrapv1.Arg) bool { return a.Name == "node-labels" })
		}
	}))
	u.rollOut(ctx, t, before)
	require.NotContains(t, u.logsIn(ctx, t, second), true)
	for name, n := range u.workloadNodes(ctx, t) {
		require.NotContains(t, n.Labels, "e2e.refit/disk", name)
		require.NotContains(t, n.Spec.Taints, taint, name)
	}
}

// roomForPods is how many pods the Nodes of Machines say that they can have.
func (u *suite) roomForPods(ctx context.Context, t *testing.T, machines []string) map[string]int64 {
	t.Helper()
	out, nodes := map[string]int64{}, u.workloadNodes(ctx, t)
	for _, name := range machines {
		n := nodes[name]
		out[name] = n.Status.Capacity.Pods().Value()
	}
	return out
}

// kubeletArguments changes an argument of which the Node tells, and takes it away again.
func (u *suite) kubeletArguments(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	pods := func() map[string]int64 { return u.roomForPods(ctx, t, u.machines(ctx, t)) }
	standard := pods()
	set := func(args ...bootstrapv1.Arg) {
		require.NoError(t, u.configure(ctx, func(config *bootstrapv1.KubeadmConfigSpec) {
			for _, r := range registrations(config) {
				r.KubeletExtraArgs = append(slices.DeleteFunc(r.KubeletExtraArgs, func(a bootstrapv1.Arg) bool { return a.Name == "max-pods" }), args...)
			}
		}))
		u.rollOut(ctx, t, before)
		u.healthy(ctx, t)
	}
	set(bootstrapv1.Arg{Name: "max-pods", Value: new("77")})
	for name, n := range pods() {
		require.EqualValues(t, 77, n, name)
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		require.Equal(t, []string{"Restart kubelet.service"}, mu.Status.Actions)
	}
	set()
	require.Equal(t, standard, pods())
}

// kubeletPatches has the workers' kubelets be configured by a patch of kubeadm's, and takes it away again.
func (u *suite) kubeletPatches(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	patch := file("/etc/kubernetes/patches/kubeletconfiguration0+merge.yaml", "maxPods: 64\n")
	pods := func() map[string]int64 { return u.roomForPods(ctx, t, u.workers(ctx, t)) }
	standard := pods()
	require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
		config.JoinConfiguration.Patches.Directory = path.Dir(patch.Path)
		config.Files = append(config.Files, patch)
	}))
	u.rollOut(ctx, t, before)
	for name, n := range pods() {
		require.EqualValues(t, 64, n, name)
		require.Contains(t, u.exec(ctx, t, name, "cat", "/var/lib/kubelet/config.yaml"), "maxPods: 64")
	}
	require.NoError(t, u.Cluster.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
		config.JoinConfiguration.Patches.Directory = ""
		config.Files = slices.DeleteFunc(config.Files, func(f bootstrapv1.File) bool { return f.Path == patch.Path })
	}))
	u.rollOut(ctx, t, before)
	require.Equal(t, standard, pods())
	for _, name := range u.workers(ctx, t) {
		require.NotContains(t, u.exec(ctx, t, name, "cat", "/var/lib/kubelet/config.yaml"), "maxPods: 64")
	}
}

// question is what Cluster API asks about a change of the control plane's configuration, for one of its Machines. All of them are up
// to date, and one that kubeadm init has made is compared as one that has joined.
func (u *suite) question(ctx context.Context, t *testing.T, change func(*bootstrapv1.KubeadmConfigSpec)) *runtimehooksv1.CanUpdateMachineRequest {
	t.Helper()
	machines, err := u.Cluster.ControlPlaneMachines(ctx)
	require.NoError(t, err)
	machine := machines[0]
	machine.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	infrastructure, err := external.GetObjectFromContractVersionedRef(ctx, u.Client, machine.Spec.InfrastructureRef, machine.Namespace)
	require.NoError(t, err)
	spec := u.controlPlaneConfig(ctx, t)
	objects := func() runtimehooksv1.CanUpdateMachineRequestObjects {
		config := &bootstrapv1.KubeadmConfig{Spec: *spec.DeepCopy()}
		config.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind("KubeadmConfig"))
		config.Namespace, config.Name, config.Labels = machine.Namespace, machine.Name, machine.Labels
		config.Spec.InitConfiguration = bootstrapv1.InitConfiguration{}
		config.Spec.JoinConfiguration.ControlPlane = &bootstrapv1.JoinControlPlane{}
		return runtimehooksv1.CanUpdateMachineRequestObjects{
			Machine: machine, InfrastructureMachine: raw(t, infrastructure), BootstrapConfig: raw(t, config),
		}
	}
	request := &runtimehooksv1.CanUpdateMachineRequest{Current: objects()}
	change(&spec)
	request.Desired = objects()
	request.SetGroupVersionKind(runtimehooksv1.GroupVersion.WithKind("CanUpdateMachineRequest"))
	return request
}

func raw(t *testing.T, object any) runtime.RawExtension {
	t.Helper()
	content, err := json.Marshal(object)
	require.NoError(t, err)
	return runtime.RawExtension{Raw: content}
}

// explain returns what "refit explain" says, and demands that the change is made in place.
func (u *suite) explain(ctx context.Context, t *testing.T, request *runtimehooksv1.CanUpdateMachineRequest) *handlers.Explanation {
	t.Helper()
	content, err := json.Marshal(request)
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "bin", "refit"), "explain", "-f", "-", "-o", "json", "--allow-paths", app)
	cmd.Stdin = bytes.NewReader(content)
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "refit explain: %s", output)
	var x handlers.Explanation
	require.NoError(t, json.Unmarshal(output, &x))
	for _, f := range x.Fields {
		t.Logf("refit explain: %s: %s, by %s %s", f.Path, strings.Join(f.Actions, ", "), f.Updater, f.Reason)
	}
	require.Equal(t, handlers.VerdictInPlace, x.Verdict)
	return &x
}
