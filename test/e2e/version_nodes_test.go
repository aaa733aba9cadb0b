//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/test/lab"
)

// source serves the newer version, and has the cluster's machines get it from there as long as the test runs.
func (u *suite) source(ctx context.Context, t *testing.T) (*lab.Releases, *refitv1.KubernetesSource) {
	t.Helper()
	releases, err := u.Lab.Releases(ctx, newerVersion)
	require.NoError(t, err)
	source := &refitv1.KubernetesSource{ObjectMeta: metav1.ObjectMeta{Namespace: u.Cluster.Namespace, Name: "e2e"}, Spec: released(releases)}
	require.NoError(t, u.Client.Create(ctx, source))
	t.Cleanup(func() { require.NoError(t, u.Client.Delete(context.WithoutCancel(ctx), source)) })
	u.changeSource(ctx, t, source, func(*refitv1.KubernetesSourceSpec) {})
	return releases, source
}

// released is what a KubernetesSource says of releases as they are served now.
func released(r *lab.Releases) refitv1.KubernetesSourceSpec {
	spec := refitv1.KubernetesSourceSpec{
		Staging:  refitv1.EarlyStaging,
		Binaries: &refitv1.BinariesSource{URL: refitv1.SourceURL(r.ProgramURL())},
		Versions: []refitv1.SourceVersion{{Version: newerVersion}},
	}
	for _, url := range r.ArchiveURLs() {
		spec.Images.Archives = append(spec.Images.Archives, refitv1.SourceURL(url))
	}
	spec.Images.Pull = len(spec.Images.Archives) == 0
	sums := r.Checksums(newerVersion)
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		spec.Versions[0].Checksums = append(spec.Versions[0].Checksums,
			refitv1.SourceChecksum{Name: name, Architecture: runtime.GOARCH, SHA256: sums[name]})
	}
	return spec
}

// changeSource changes a source, and waits until refit has seen it.
func (u *suite) changeSource(ctx context.Context, t *testing.T, source *refitv1.KubernetesSource, change func(*refitv1.KubernetesSourceSpec)) {
	t.Helper()
	require.NoError(t, u.Client.Get(ctx, client.ObjectKeyFromObject(source), source))
	before := source.DeepCopy()
	change(&source.Spec)
	require.NoError(t, u.Client.Patch(ctx, source, client.MergeFrom(before)))
	require.NoError(t, poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
		err := u.Client.Get(ctx, client.ObjectKeyFromObject(source), source)
		return source.Status.ObservedGeneration == source.Generation && meta.IsStatusConditionTrue(source.Status.Conditions, refitv1.ReadyCondition), err
	}), "the source is not Ready")
}

// controlPlanes are the names of the Machines of the control plane, in order.
func (u *suite) controlPlanes(ctx context.Context, t *testing.T) []string {
	t.Helper()
	machines, err := u.Cluster.ControlPlaneMachines(ctx)
	require.NoError(t, err)
	var names []string
	for _, m := range machines {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

// containers tell, by Machine, one container and one boot of it from others.
func (u *suite) containers(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range u.machines(ctx, t) {
		id, err := u.Lab.Engine().Run(ctx, nil, "inspect", "--format", "{{.Id}}", name)
		require.NoError(t, err)
		boot, err := u.Fleet.Node(name).Boot(ctx)
		require.NoError(t, err)
		out[name] = strings.TrimSpace(string(id)) + " " + boot
	}
	return out
}

// runs demands that nodes are Ready with a version of Kubernetes: with its kubelet running, and its programs on the disk.
func (u *suite) runs(ctx context.Context, t *testing.T, machines []string, version string) {
	t.Helper()
	workload := u.workload(ctx, t)
	for _, name := range machines {
		key := client.ObjectKey{Name: u.nodeOf(ctx, t, name)}
		eventually(ctx, t, func(ctx context.Context) error {
			var n corev1.Node
			if err := workload.Get(ctx, key, &n); err != nil {
				return err
			}
			if !ready(n) || n.Status.NodeInfo.KubeletVersion != version {
				return fmt.Errorf("node %s is Ready: %t, and its kubelet is %s", n.Name, ready(n), n.Status.NodeInfo.KubeletVersion)
			}
			return nil
		})
		for _, command := range [][]string{{"kubelet", "--version"}, {"kubeadm", "version", "--output", "short"}} {
			out, err := u.Fleet.Node(name).Exec(ctx, command...)
			require.NoError(t, err)
			require.Equal(t, version, strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes "), "%s of %s", command[0], name)
		}
	}
}

// staticPod is one of a control plane's pods, as its API server shows it.
func (u *suite) staticPod(ctx context.Context, component, node string) (*corev1.Pod, error) {
	workload, err := u.Cluster.WorkloadClient(ctx)
	if err != nil {
		return nil, err
	}
	var pod corev1.Pod
	return &pod, workload.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: component + "-" + node}, &pod)
}

// journalSince are the entries of a node's journal since a time.
func (u *suite) journalSince(ctx context.Context, t *testing.T, name string, since time.Time) []node.JournalEntry {
	t.Helper()
	entries, err := u.Fleet.Node(name).Journal(ctx)
	require.NoError(t, err)
	return slices.DeleteFunc(entries, func(e node.JournalEntry) bool { return e.Time.Before(since) })
}

// kubeProxyRolledOut waits until kube-proxy has the newer version on all nodes. Cluster API sees to that when the control plane is there.
func (u *suite) kubeProxyRolledOut(ctx context.Context, t *testing.T) {
	t.Helper()
	workload := u.workload(ctx, t)
	var set appsv1.DaemonSet
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		err := workload.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-proxy"}, &set)
		s := set.Status
		return err == nil && strings.HasSuffix(set.Spec.Template.Spec.Containers[0].Image, ":"+newerVersion) && s.ObservedGeneration == set.Generation &&
			s.UpdatedNumberScheduled == s.DesiredNumberScheduled && s.NumberAvailable == s.DesiredNumberScheduled, nil
	}), "kube-proxy is not on all nodes: %+v", set.Status)
}

// releasesDir is where the agent keeps releases.
const releasesDir = "/var/lib/refit/kubernetes"

// narrow gives nodes a disk for releases that has no room for one, or takes it away again.
func (u *suite) narrow(ctx context.Context, t *testing.T, machines []string, narrow bool) {
	t.Helper()
	script := "umount --lazy " + releasesDir
	if narrow {
		script = "install --directory --mode=0700 /var/lib/refit " + releasesDir + " && mount -t tmpfs -o size=8m,mode=0700 tmpfs " + releasesDir
	}
	for _, name := range machines {
		_, err := u.Fleet.Node(name).Exec(ctx, "sh", "-c", script)
		require.NoError(t, err)
	}
}
