//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
)

const (
	// manifests is where kubeadm puts those of the control plane.
	manifests = "/etc/kubernetes/manifests"
	// apiCertificate is what the API server serves.
	apiCertificate = "/etc/kubernetes/pki/apiserver.crt"
	// servedName is one that neither it nor those of etcd have at first.
	servedName = "api.refit-e2e.example"
	// patched is an annotation that patchFile gives to the scheduler's pod.
	patched = "refit-e2e/patched"
	// kubeadmGate is one that is on anyway, so that naming it changes the specs and no manifest.
	kubeadmGate = "NodeLocalCRISocket"
)

// patchFile has kubeadm change the scheduler's manifest.
var patchFile = file(app+"/patches/kube-scheduler0+merge.yaml", "metadata:\n  annotations:\n    "+patched+": \"yes\"\n")

// controlPlaneEdit is one edit of a control plane's configuration.
type controlPlaneEdit struct {
	fill func(*bootstrapv1.KubeadmConfigSpec)
	// arguments are those by which each process shows what fill has given to it.
	arguments map[string]string
}

func argument(name, value string) bootstrapv1.Arg {
	return bootstrapv1.Arg{Name: name, Value: new(value)}
}

// quickEdit has fields that restart neither the API servers nor etcd.
var quickEdit = controlPlaneEdit{
	fill: func(config *bootstrapv1.KubeadmConfigSpec) {
		c := &config.ClusterConfiguration
		c.ControllerManager.ExtraArgs = append(c.ControllerManager.ExtraArgs, argument("concurrent-endpoint-syncs", "7"))
		c.Scheduler.ExtraArgs = append(c.Scheduler.ExtraArgs, argument("v", "3"))
		c.APIServer.CertSANs = append(c.APIServer.CertSANs, servedName)
		c.Etcd.Local.ServerCertSANs = append(c.Etcd.Local.ServerCertSANs, servedName)
		c.Etcd.Local.PeerCertSANs = append(c.Etcd.Local.PeerCertSANs, servedName)
		c.FeatureGates = map[string]bool{kubeadmGate: true}
		config.Files = append(config.Files, patchFile)
		// The first machine of a control plane has the configuration for init, all others that for join.
		config.InitConfiguration.Patches.Directory = path.Dir(patchFile.Path)
		config.JoinConfiguration.Patches.Directory = path.Dir(patchFile.Path)
	},
	arguments: map[string]string{"kube-controller-manager": "--concurrent-endpoint-syncs=7", "kube-scheduler": "--v=3"},
}

// slowEdit has fields of the API servers and etcd.
var slowEdit = controlPlaneEdit{
	fill: func(config *bootstrapv1.KubeadmConfigSpec) {
		c := &config.ClusterConfiguration
		c.APIServer.ExtraArgs = append(c.APIServer.ExtraArgs, argument("event-ttl", "2h"))
		c.APIServer.ExtraEnvs = &[]bootstrapv1.EnvVar{{EnvVar: corev1.EnvVar{Name: "REFIT_E2E", Value: "yes"}}}
		c.APIServer.ExtraVolumes = append(c.APIServer.ExtraVolumes, bootstrapv1.HostPathMount{
			Name: "refit-e2e", HostPath: app, MountPath: app, ReadOnly: new(true), PathType: corev1.HostPathDirectoryOrCreate,
		})
		c.Etcd.Local.ExtraArgs = append(c.Etcd.Local.ExtraArgs, argument("snapshot-count", "20000"))
	},
	arguments: map[string]string{"etcd": "--snapshot-count=20000", "kube-apiserver": "--event-ttl=2h"},
}

// revert returns an edit that has again what was there before.
func revert(original bootstrapv1.KubeadmConfigSpec) func(*bootstrapv1.KubeadmConfigSpec) {
	return func(config *bootstrapv1.KubeadmConfigSpec) {
		was := original.DeepCopy()
		c, of := &config.ClusterConfiguration, was.ClusterConfiguration
		c.APIServer, c.ControllerManager, c.Scheduler, c.Etcd, c.FeatureGates = of.APIServer, of.ControllerManager, of.Scheduler, of.Etcd, of.FeatureGates
		config.Files = was.Files
		config.InitConfiguration.Patches, config.JoinConfiguration.Patches = was.InitConfiguration.Patches, was.JoinConfiguration.Patches
	}
}

// controlPlaneFields changes the fields of a control plane that are quick to take effect in one edit, and takes them back in
// another. The first node can't take all of it at first: it is put back, until the cause is gone.
func (u *suite) controlPlaneFields(ctx context.Context, t *testing.T) {
	before, original := u.identities(ctx, t), u.controlPlaneConfig(ctx, t)
	manifestsBefore, processes := u.manifestsOf(ctx, t), u.apiServersAndEtcds(ctx, t)
	u.onControlPlane(ctx, t, "chattr", "+i", apiCertificate)
	explained := u.edit(ctx, t, quickEdit.fill)
	failed := u.anyControlPlane(ctx, t, func(mu *refitv1.MachineUpdate) bool { return mu.Status.Phase == refitv1.PhaseFailed })
	t.Logf("%s: %s", failed.Name, failed.Status.Message)
	for _, part := range []string{apiCertificate, "operation not permitted", "put back", "refit retry"} {
		require.Contains(t, failed.Status.Message, part)
	}
	require.Equal(t, manifestsBefore, u.manifestsOf(ctx, t), "its static pods are as they were, and the other nodes wait")
	u.showsArguments(ctx, t, quickEdit, false)
	u.showsPatch(ctx, t, false)
	u.servesName(ctx, t, false)
	u.settled(ctx, t)

	u.onControlPlane(ctx, t, "chattr", "-i", apiCertificate)
	t.Log(u.refit(ctx, t, "retry", failed.Name))
	for _, all := range []bool{true, false} {
		if !all {
			explained = u.edit(ctx, t, revert(original))
		}
		u.rollOut(ctx, t, before)
		u.settled(ctx, t, controlplanev1.KubeadmControlPlaneMachinesUpToDateCondition)
		u.tookActions(ctx, t, explained)
		u.showsArguments(ctx, t, quickEdit, all)
		u.showsPatch(ctx, t, all)
		u.servesName(ctx, t, all)
		require.Equal(t, processes, u.apiServersAndEtcds(ctx, t), "neither API servers nor etcds were started again")
	}
}

// apiServerAndEtcdFields changes fields that restart API servers and etcds.
func (u *suite) apiServerAndEtcdFields(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	explained := u.edit(ctx, t, slowEdit.fill)
	u.rollOut(ctx, t, before)
	u.settled(ctx, t, controlplanev1.KubeadmControlPlaneMachinesUpToDateCondition)
	u.tookActions(ctx, t, explained)
	u.showsArguments(ctx, t, slowEdit, true)
	for _, name := range u.controlPlanes(ctx, t) {
		require.Contains(t, u.process(ctx, t, name, "kube-apiserver"), "REFIT_E2E=yes", "the environment on %s", name)
		mounts := u.exec(ctx, t, name, "sh", "-c", "cat /proc/$(pgrep -xo kube-apiserver)/mountinfo")
		require.Contains(t, mounts, " "+app+" ", "the volume on %s", name)
	}
	u.keptSnapshots(ctx, t)
}

func (u *suite) controlPlaneConfig(ctx context.Context, t *testing.T) bootstrapv1.KubeadmConfigSpec {
	t.Helper()
	var kcp controlplanev1.KubeadmControlPlane
	require.NoError(t, u.Client.Get(ctx, u.Cluster.ObjectKey, &kcp))
	return kcp.Spec.KubeadmConfigSpec
}

// edit changes the control plane's configuration. Before that it has "refit explain" say what the change takes.
func (u *suite) edit(ctx context.Context, t *testing.T, change func(*bootstrapv1.KubeadmConfigSpec)) *handlers.Explanation {
	t.Helper()
	explained := u.explain(ctx, t, u.question(ctx, t, change))
	require.NoError(t, u.Cluster.ChangeControlPlane(ctx, func(kcp *controlplanev1.KubeadmControlPlane) { change(&kcp.Spec.KubeadmConfigSpec) }))
	return explained
}

// tookActions demands that each control plane has taken what "refit explain" has said before.
func (u *suite) tookActions(ctx context.Context, t *testing.T, explained *handlers.Explanation) {
	t.Helper()
	require.Equal(t, []string{"StaticPodRefresh"}, explained.Actions)
	for _, name := range u.controlPlanes(ctx, t) {
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		require.Equal(t, explained.Actions, mu.Status.Actions, name)
	}
}

// settled waits until the control plane's controller finds it whole.
func (u *suite) settled(ctx context.Context, t *testing.T, more ...string) {
	t.Helper()
	u.controlPlaneIs(ctx, t, append([]string{
		controlplanev1.KubeadmControlPlaneAvailableCondition, controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition,
		controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition,
	}, more...)...)
}

// controlPlaneIs waits until conditions are true of the control plane. Its controller looks at the pods from time to time only.
func (u *suite) controlPlaneIs(ctx context.Context, t *testing.T, conditions ...string) {
	t.Helper()
	eventually(ctx, t, func(ctx context.Context) error {
		var kcp controlplanev1.KubeadmControlPlane
		if err := u.Client.Get(ctx, u.Cluster.ObjectKey, &kcp); err != nil {
			return err
		}
		for _, name := range conditions {
			if c := meta.FindStatusCondition(kcp.Status.Conditions, name); c == nil || c.Status != metav1.ConditionTrue {
				return fmt.Errorf("%s of the control plane is %v", name, c)
			}
		}
		return nil
	})
}

// anyControlPlane waits until the update of one of the control planes is as ok says.
func (u *suite) anyControlPlane(ctx context.Context, t *testing.T, ok func(*refitv1.MachineUpdate) bool) *refitv1.MachineUpdate {
	t.Helper()
	var found *refitv1.MachineUpdate
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		for _, name := range u.controlPlanes(ctx, t) {
			mu, err := u.Update(ctx, name)
			if err != nil {
				return false, err
			}
			if mu != nil && ok(mu) {
				found = mu
			}
		}
		return found != nil, nil
	}), "no control plane's update came to be as expected")
	return found
}

func (u *suite) exec(ctx context.Context, t *testing.T, name string, command ...string) string {
	t.Helper()
	out, err := u.Fleet.Node(name).Exec(ctx, command...)
	require.NoError(t, err, "%v on %s", command, name)
	return strings.TrimSpace(string(out))
}

func (u *suite) onControlPlane(ctx context.Context, t *testing.T, command ...string) {
	t.Helper()
	for _, name := range u.controlPlanes(ctx, t) {
		u.exec(ctx, t, name, command...)
	}
}

// manifestsOf are the manifests of all control planes.
func (u *suite) manifestsOf(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range u.controlPlanes(ctx, t) {
		all[name] = u.exec(ctx, t, name, "sh", "-c", "cd "+manifests+" && tail -n +1 *")
	}
	return all
}

// apiServersAndEtcds are the processes of both on all control planes.
func (u *suite) apiServersAndEtcds(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range u.controlPlanes(ctx, t) {
		all[name] = u.exec(ctx, t, name, "pgrep", "-x", "kube-apiserver|etcd")
	}
	return all
}

// process is the command line of a program that runs on a node, word by word, and the environment that it was given.
func (u *suite) process(ctx context.Context, t *testing.T, name, program string) []string {
	t.Helper()
	const known = 15 // bytes of a program's name that the kernel knows
	out := u.exec(ctx, t, name, "sh", "-c", "p=$(pgrep -xo "+program[:min(known, len(program))]+") && cat /proc/$p/cmdline /proc/$p/environ")
	return strings.Split(out, "\x00")
}

// showsArguments demands that manifests and processes of each control plane have what the edit has given to them, or nothing of it.
func (u *suite) showsArguments(ctx context.Context, t *testing.T, edit controlPlaneEdit, all bool) {
	t.Helper()
	for _, name := range u.controlPlanes(ctx, t) {
		for program, argument := range edit.arguments {
			manifest := u.exec(ctx, t, name, "cat", path.Join(manifests, program+".yaml"))
			require.Equal(t, all, strings.Contains(manifest, argument), "%s in the manifest of %s on %s", argument, program, name)
			require.Equal(t, all, slices.Contains(u.process(ctx, t, name, program), argument), "%s of %s on %s", argument, program, name)
		}
	}
}

// showsPatch demands that the scheduler of each control plane runs with the patch, and the patch is there, or neither.
func (u *suite) showsPatch(ctx context.Context, t *testing.T, all bool) {
	t.Helper()
	workload := u.workload(ctx, t)
	for _, name := range u.controlPlanes(ctx, t) {
		var pod corev1.Pod
		require.NoError(t, workload.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kube-scheduler-" + u.nodeOf(ctx, t, name)}, &pod))
		require.Equal(t, all, pod.Annotations[patched] == "yes", "the patch of kube-scheduler on %s", name)
		_, err := u.Fleet.Node(name).ReadFile(ctx, patchFile.Path)
		require.Equal(t, all, err == nil, "%s on %s", patchFile.Path, name)
	}
}

// servedAt are the certificates in which names are put, by the ports at which they are served.
var servedAt = map[string]string{
	"6443": apiCertificate, "2379": "/etc/kubernetes/pki/etcd/server.crt", "2380": "/etc/kubernetes/pki/etcd/peer.crt",
}

// servesName demands that each API server and each etcd serves the certificate that is on its node, and that this has the name, or does not
// have it.
func (u *suite) servesName(ctx context.Context, t *testing.T, all bool) {
	t.Helper()
	for _, name := range u.controlPlanes(ctx, t) {
		for port, file := range servedAt {
			block, _ := pem.Decode([]byte(u.exec(ctx, t, name, "cat", file)))
			require.NotNil(t, block)
			address := net.JoinHostPort(u.Fleet.Node(name).Address().Host, port)
			// By TLS 1.3 a server shows its certificate before it asks for the client's, so that none is needed here.
			conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
			require.NoError(t, err)
			leaf := conn.ConnectionState().PeerCertificates[0]
			require.NoError(t, conn.Close())
			require.Equal(t, block.Bytes, leaf.Raw, "the certificate that %s serves at %s", name, port)
			require.Equal(t, all, slices.Contains(leaf.DNSNames, servedName), "the names that %s serves at %s: %v", name, port, leaf.DNSNames)
		}
	}
}

// keptSnapshots demands that each node keeps the snapshot of its etcd that its update tells of.
func (u *suite) keptSnapshots(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, name := range u.controlPlanes(ctx, t) {
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		_, kept, found := strings.Cut(strings.Join(mu.Status.Notes, "\n"), "a snapshot of etcd is kept in ")
		require.True(t, found, "the notes of %s: %v", name, mu.Status.Notes)
		u.exec(ctx, t, name, "test", "-s", strings.TrimRight(strings.Fields(kept)[0], ";,."))
	}
}
