//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
)

// editedFile is laid down by the bootstrap data of real machines, and then edited by a command of it.
var editedFile = bootstrapv1.File{Path: "/etc/refit-lab/edited.conf", Content: "laid down\n", Owner: "root:root", Permissions: "0644"}

// realMachines are the scenarios on machines that kubeadm has made nodes of a real cluster, and those that need one.
var realMachines = group{
	name: "machines", machines: true, scenarios: slices.Concat([]scenario{
		{"pods keep answering through five changes in a row that are not disruptive", (*suite).servesThroughout},
	}, nodesThatWork, versions),
}

// undisturbing are five changes in a row that disturb no pod.
var undisturbing = []scenario{
	{"what bootstrap laid down and a command edited stays as it was edited", (*suite).edited},
	{"a drop-in of the kubelet restarts it, and the Node is Ready again", (*suite).kubeletDropIn},
	{"three changes of a file re-create no Machine", func(u *suite, ctx context.Context, t *testing.T) { u.changeAgainAndAgain(ctx, t, 3) }},
}

// moreOnRealMachines are the kubelet's arguments, nodes that are disturbed, those scenarios of the in-memory backend that show on real
// machines just the same, and fields that take three minutes a node. While the etcd of a node is down, so is its API server, and there
// the kubelet first deletes the old etcd's pod: it starts the new etcd when that has timed out, after 34 seconds.
var moreOnRealMachines = group{
	name: "more", machines: true, scenarios: slices.Concat([]scenario{
		{"an argument of the kubelet takes effect, and goes again", (*suite).kubeletArguments},
		{"an argument that the kubelet does not start with is rolled back", (*suite).brokenArgument},
		{"a patch of the kubelets' configuration takes effect on workers, and goes again", (*suite).kubeletPatches},
	}, disturbedMachines, common, []scenario{
		{"fields of a control plane are put back where a node can't take them, take effect, and go again", (*suite).controlPlaneFields},
		{"arguments, environment and volumes of API servers and arguments of etcds take effect", (*suite).apiServerAndEtcdFields},
	}, replaces),
}

// TestRealMachines runs the scenarios of real machines.
func TestRealMachines(t *testing.T) { run(t, realMachines) }

// TestMoreOnRealMachines runs what would take continuous integration too long.
func TestMoreOnRealMachines(t *testing.T) { run(t, moreOnRealMachines) }

// healthy demands what the control plane's controller checks before it goes on: etcd and the static pods.
func (u *suite) healthy(ctx context.Context, t *testing.T) {
	t.Helper()
	u.controlPlaneIs(ctx, t,
		controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition)
}

func (u *suite) edited(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	want := editedFile
	want.Content = "edited\n"
	u.everywhere(ctx, t, want)
	added := file(app+"/beside", "added\n")
	require.NoError(t, u.SetFiles(ctx, file("/etc/demo.conf", "hello\n"), editedFile, added))
	u.rollOut(ctx, t, before)
	u.healthy(ctx, t)
	u.everywhere(ctx, t, added)
	u.everywhere(ctx, t, want)
	for _, name := range u.machines(ctx, t) {
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		require.Contains(t, strings.Join(mu.Status.Notes, "\n"), editedFile.Path+" was changed on the node")
		require.Len(t, mu.Status.Changes, 1, "what the specs did not change is not touched: %v", mu.Status.Changes)
	}
}

// servePort is where the pods of servesThroughout answer, on their nodes' own addresses.
const servePort = 18080

func (u *suite) servesThroughout(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	workload, err := u.Cluster.WorkloadClient(ctx)
	require.NoError(t, err)
	u.startServer(ctx, t, workload)
	asking, stop := context.WithCancel(ctx)
	defer stop()
	end := u.watchGreen(ctx)
	var done sync.WaitGroup
	asked := make([]answers, len(before))
	for i, name := range u.machines(ctx, t) {
		url := fmt.Sprintf("http://%s:%d/health", u.Fleet.Node(name).Address().Host, servePort)
		require.NoError(t, poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
			return ask(ctx, url) == nil, nil
		}), "the pod on %s does not answer", name)
		done.Go(func() { asked[i] = askUntil(asking, url) })
	}
	var served map[types.UID]int32
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		var err error
		served, err = servers(ctx, workload)
		return len(served) == len(before), err
	}), "a pod on each node")
	u.runAll(ctx, t, undisturbing)
	stop()
	done.Wait()
	for i, name := range u.machines(ctx, t) {
		t.Logf("the pod on %s answered %d times, the slowest time after %s", name, asked[i].count, asked[i].slowest.Round(time.Millisecond))
		require.NoError(t, asked[i].failure, "the pod on %s", name)
		require.Greater(t, asked[i].count, 20)
	}
	now, err := servers(ctx, workload)
	require.NoError(t, err)
	require.Equal(t, served, now, "no pod was made again, no container restarted")
	u.stayedGreen(ctx, t, end())
	require.Equal(t, before, u.identities(ctx, t))
}

// startServer starts a pod on each node that answers HTTP at the node's address: CoreDNS, whose image every node has.
func (u *suite) startServer(ctx context.Context, t *testing.T, workload client.Client) {
	t.Helper()
	var dns appsv1.Deployment
	require.NoError(t, workload.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "coredns"}, &dns))
	name, labels := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "serve"}, map[string]string{"app": "serve"}
	config := &corev1.ConfigMap{ObjectMeta: name, Data: map[string]string{"Corefile": fmt.Sprintf(".:15353 {\n  health :%d\n}\n", servePort)}}
	require.NoError(t, workload.Create(ctx, config))
	set := &appsv1.DaemonSet{ObjectMeta: name}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	set.Spec.Template.Labels = labels
	set.Spec.Template.Spec = corev1.PodSpec{
		HostNetwork: true,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "serve", Image: dns.Spec.Template.Spec.Containers[0].Image, ImagePullPolicy: corev1.PullIfNotPresent,
			Args:         []string{"-conf", "/config/Corefile"},
			Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}},
			VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/config"}},
		}},
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name.Name}},
		}}},
	}
	require.NoError(t, workload.Create(ctx, set))
}

// servers are the pods of startServer with how often their containers were restarted.
func servers(ctx context.Context, workload client.Client) (map[types.UID]int32, error) {
	var list corev1.PodList
	if err := workload.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{"app": "serve"}); err != nil {
		return nil, err
	}
	restarts := map[types.UID]int32{}
	for _, pod := range list.Items {
		for _, c := range pod.Status.ContainerStatuses {
			restarts[pod.UID] += c.RestartCount
		}
	}
	return restarts, nil
}

// answers is how often there was one, how long the slowest took, and the first failure.
type answers struct {
	count   int
	slowest time.Duration
	failure error
}

// askUntil asks ten times a second until ctx ends.
func askUntil(ctx context.Context, url string) (a answers) {
	for {
		select {
		case <-ctx.Done():
			return a
		case <-time.After(100 * time.Millisecond):
		}
		began := time.Now()
		err := ask(ctx, url)
		switch {
		case ctx.Err() != nil:
		case err != nil && a.failure == nil:
			a.failure = err
		case err == nil:
			a.count++
			a.slowest = max(a.slowest, time.Since(began))
		}
	}
}

func ask(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // who is slow answers nevertheless
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only the status counts
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

func (u *suite) kubeletDropIn(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	started := map[string]string{}
	for _, name := range u.machines(ctx, t) {
		started[name] = u.mainPID(ctx, t, name, "kubelet.service")
	}
	dropIn := file("/etc/systemd/system/kubelet.service.d/50-refit-e2e.conf", "[Service]\nEnvironment=REFIT_E2E=yes\n")
	require.NoError(t, u.SetFiles(ctx, dropIn))
	u.rollOut(ctx, t, before)
	u.healthy(ctx, t)
	u.everywhere(ctx, t, dropIn)
	workload, err := u.Cluster.WorkloadClient(ctx)
	require.NoError(t, err)
	for _, name := range u.machines(ctx, t) {
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		require.Subset(t, mu.Status.Actions, []string{"DaemonReload", "Restart kubelet.service"})
		pid := u.mainPID(ctx, t, name, "kubelet.service")
		require.NotEqual(t, started[name], pid, "the kubelet of %s was restarted", name)
		environment, err := u.Fleet.Node(name).Exec(ctx, "cat", "/proc/"+pid+"/environ")
		require.NoError(t, err)
		require.Contains(t, string(environment), "REFIT_E2E=yes", "the kubelet that runs has the drop-in")
		u.nodeReady(ctx, t, workload, name)
	}
}

// nodeReady waits until a machine's kubelet has told since its start that its Node is Ready: what an earlier one told stays for a while.
func (u *suite) nodeReady(ctx context.Context, t *testing.T, workload client.Client, name string) {
	t.Helper()
	node, since := u.nodeOf(ctx, t, name), u.kubeletStarted(ctx, t, name)
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		var n corev1.Node
		if err := workload.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
			return false, nil //nolint:nilerr // its API server may be one whose kubelet has just been restarted
		}
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(since)
		}), nil
	}), "Node %s is not Ready", node)
}

// kubeletStarted is when systemd has started a machine's kubelet, to the second.
func (u *suite) kubeletStarted(ctx context.Context, t *testing.T, name string) time.Time {
	t.Helper()
	out := u.exec(ctx, t, name, "sh", "-c", `date --date "$(systemctl show --value --property ExecMainStartTimestamp kubelet.service)" +%s`)
	at, err := strconv.ParseInt(out, 10, 64)
	require.NoError(t, err)
	return time.Unix(at, 0)
}

// mainPID is the process of a unit.
func (u *suite) mainPID(ctx context.Context, t *testing.T, name, unit string) string {
	t.Helper()
	out, err := u.Fleet.Node(name).Exec(ctx, "systemctl", "show", "--value", "-p", "MainPID", unit)
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}
