//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// warnings are those that an API server sends.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// warnedForTainting taints a Node, and returns what the API server warns of. The taint goes again.
func (u *suite) warnedForTainting(ctx context.Context, t *testing.T, node string) string {
	t.Helper()
	kubeconfig, err := u.Cluster.WorkloadKubeconfig(ctx)
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	var told warnings
	config.WarningHandler = &told
	admin, err := client.New(config, client.Options{})
	require.NoError(t, err)
	for _, taints := range [][]corev1.Taint{{{Key: "e2e", Effect: corev1.TaintEffectNoSchedule}}, nil} {
		var n corev1.Node
		require.NoError(t, admin.Get(ctx, client.ObjectKey{Name: node}, &n))
		before := n.DeepCopy()
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "e2e" })
		n.Spec.Taints = append(n.Spec.Taints, taints...)
		require.NoError(t, admin.Patch(ctx, &n, client.MergeFrom(before)))
	}
	return strings.Join(told, "\n")
}

// drains has a pod leave, when its PodDisruptionBudget lets it.
func (u *suite) drains(ctx context.Context, t *testing.T) {
	u.needsSystemd(t)
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	name := u.workers(ctx, t)[0]
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "guest", Labels: map[string]string{"app": "guest"}},
		Spec: corev1.PodSpec{
			NodeName: u.nodeOf(ctx, t, name), TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers:                   []corev1.Container{{Name: "guest", Image: "guest"}},
			AutomountServiceAccountToken: ptr.To(false),
		},
	}
	// Admission wants it, and there is no controller that would make it.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "default"}}
	require.NoError(t, client.IgnoreAlreadyExists(workload.Create(ctx, account)))
	require.NoError(t, workload.Create(ctx, pod))
	eventually(ctx, t, func(ctx context.Context) error { // the lab's kubelet says so
		err := workload.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("the pod is %s", pod.Status.Phase)
		}
		return err
	})
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "guest"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}},
	}
	require.NoError(t, workload.Create(ctx, budget))
	// There is no controller that would count.
	allow := func(disruptions int32) {
		budget.Status.ObservedGeneration, budget.Status.DisruptionsAllowed = budget.Generation, disruptions
		budget.Status.CurrentHealthy, budget.Status.DesiredHealthy, budget.Status.ExpectedPods = 1, 1, 1
		require.NoError(t, workload.Status().Update(ctx, budget))
	}
	allow(0)

	f := file("/etc/containerd/conf.d/e2e.toml", "version = 3\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
	mu, err := u.AwaitUpdate(ctx, name, func(mu *refitv1.MachineUpdate) bool {
		return mu.Status.Phase == refitv1.PhaseDraining && mu.Status.Drain != nil && len(mu.Status.Drain.Blocked) > 0
	})
	require.NoError(t, err)
	require.Equal(t, int32(1), mu.Status.Drain.PodsLeft)
	require.Contains(t, mu.Status.Drain.Blocked[0], "PodDisruptionBudget")
	var n corev1.Node
	require.NoError(t, workload.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, &n))
	require.True(t, n.Spec.Unschedulable, "the node is cordoned")
	require.True(t, validToMedik8s(u.nodeLease(ctx, t, workload, name), time.Now()))
	_, err = u.Fleet.Node(name).ReadFile(ctx, f.Path)
	require.Error(t, err, "nothing is written before the pods have left")
	require.Contains(t, u.warnedForTainting(ctx, t, n.Name), "refit is updating node "+n.Name+" in place now")

	allow(1)
	u.rollOut(ctx, t, before)
	require.NoError(t, u.CheckFile(ctx, name, f))
	err = workload.Get(ctx, client.ObjectKeyFromObject(pod), pod)
	require.True(t, err != nil && client.IgnoreNotFound(err) == nil, "the pod has left: %v", err)
	require.NoError(t, workload.Delete(ctx, budget))
	u.nothingLeft(ctx, t, workload)
}
