//go:build e2e

package apiserver_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/process"
)

const wait, tick = 2 * time.Minute, 100 * time.Millisecond

func TestMain(m *testing.M) {
	// envtest logs through controller-runtime, which complains if nobody says where to.
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func options(t *testing.T) apiserver.Options {
	t.Helper()
	binaries, err := lab.Build(t.Context(), t.Output(), lab.Etcd, lab.KubeAPIServer)
	require.NoError(t, err)
	return apiserver.Options{Etcd: binaries[lab.Etcd], KubeAPIServer: binaries[lab.KubeAPIServer]}
}

// start starts a server that ends with the test.
func start(t *testing.T, o apiserver.Options) *apiserver.Server {
	t.Helper()
	s, err := apiserver.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

func connect(t *testing.T, kubeconfig []byte) client.Client {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	return c
}

// TestServers is about two servers with one etcd: what users may, that the two do not see each other's objects, and that nothing
// is left of them.
func TestServers(t *testing.T) {
	ctx, o := t.Context(), options(t)
	o.Dir = t.TempDir()
	first := start(t, o)
	second := start(t, apiserver.Options{KubeAPIServer: o.KubeAPIServer, Beside: first, Name: "second", Dir: o.Dir})
	running := process.Children()
	require.Len(t, running, 3)

	admin := connect(t, first.Kubeconfig)
	require.NoError(t, admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "of-the-first"}}))
	err := connect(t, second.Kubeconfig).Get(ctx, client.ObjectKey{Name: "of-the-first"}, &corev1.Namespace{})
	require.True(t, apierrors.IsNotFound(err), err)

	usersMayWhatTheyAreGiven(t, first, admin)
	manifestsApply(t, second)
	nodesAndPodsNeedNobody(t, admin)

	require.NoError(t, second.Stop())
	require.NoError(t, first.Stop())
	require.NoError(t, first.Stop(), "twice is once")
	require.Empty(t, process.Children())
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	for _, entry := range left {
		require.Regexp(t, `\.log$`, entry.Name())
	}
}

func usersMayWhatTheyAreGiven(t *testing.T, s *apiserver.Server, admin client.Client) {
	t.Helper()
	ctx := t.Context()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot"}}
	require.NoError(t, admin.Create(ctx, account))
	token, err := apiserver.AccountKubeconfig(ctx, s.Config, client.ObjectKeyFromObject(account))
	require.NoError(t, err)
	kubeconfig, err := s.KubeconfigFor("ann", "readers")
	require.NoError(t, err)
	for _, c := range []client.Client{connect(t, token), connect(t, kubeconfig)} {
		require.True(t, apierrors.IsForbidden(c.List(ctx, &corev1.NodeList{})))
	}
	require.NoError(t, admin.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"},
			{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "robot"},
		},
	}))
	for _, kubeconfig := range [][]byte{token, kubeconfig} {
		c := connect(t, kubeconfig)
		require.Eventually(t, func() bool { return c.List(ctx, &corev1.NodeList{}) == nil }, wait, tick)
		require.True(t, apierrors.IsForbidden(c.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})))
	}
	_, err = apiserver.AccountKubeconfig(ctx, s.Config, client.ObjectKey{Namespace: "default", Name: "nobody"})
	require.ErrorContains(t, err, "asking for a token of ServiceAccount default/nobody")
}

// manifestsApply applies the project's own manifests, each of which has an account.
func manifestsApply(t *testing.T, s *apiserver.Server) {
	t.Helper()
	ctx, admin := t.Context(), connect(t, s.Kubeconfig)
	for _, dir := range []string{"rbac", "workload"} {
		for range 2 {
			objects, err := apiserver.Apply(ctx, admin, filepath.Join("..", "..", "config", dir))
			require.NoError(t, err)
			require.NotEmpty(t, objects)
		}
		_, err := apiserver.AccountKubeconfig(ctx, s.Config, client.ObjectKey{Namespace: "refit-system", Name: "refit"})
		require.NoError(t, err)
	}
}

// nodesAndPodsNeedNobody shows that nodes have no taint from the start, that pods need no ServiceAccount, and that evictions are
// refused as a PodDisruptionBudget's status says.
func nodesAndPodsNeedNobody(t *testing.T, admin client.Client) {
	t.Helper()
	ctx := t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1"}}
	require.NoError(t, admin.Create(ctx, node))
	require.Empty(t, node.Spec.Taints)
	labels := map[string]string{"app": "db"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", Labels: labels}}
	pod.Spec.NodeName = "w1"
	pod.Spec.Containers = []corev1.Container{{Name: "db", Image: "db"}}
	require.NoError(t, admin.Create(ctx, pod))
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	require.NoError(t, admin.Status().Update(ctx, pod))

	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}}
	pdb.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	require.NoError(t, admin.Create(ctx, pdb))
	pdb.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: pdb.Generation, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
	require.NoError(t, admin.Status().Update(ctx, pdb))
	evict := func() error { return admin.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{}) }
	require.True(t, apierrors.IsTooManyRequests(evict()))
	pdb.Status.DisruptionsAllowed = 1
	require.NoError(t, admin.Status().Update(ctx, pdb))
	require.NoError(t, evict())
	require.NoError(t, admin.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	require.NotNil(t, pod.DeletionTimestamp, "without a kubelet it stays")
}

// TestStartFails leaves nothing behind.
func TestStartFails(t *testing.T) {
	o := options(t)
	o.KubeAPIServer = "/bin/false"
	_, err := apiserver.Start(t.Context(), o)
	require.ErrorContains(t, err, "kube-apiserver")
	require.Empty(t, process.Children())
}
