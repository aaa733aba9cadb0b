//go:build e2e

package apiserver_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/health"
	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/test/apiserver/apitest"
)

// TestGatesReadWhatRefitMayRead asks health gates with the rights that refit is installed with, and with those that docs/policies.md has people add.
func TestGatesReadWhatRefitMayRead(t *testing.T) {
	o := options(t)
	o.Dir = t.TempDir()
	s := start(t, o)
	admin := connect(t, s.Kubeconfig)
	for _, dir := range []string{"crd/bases", "rbac"} {
		_, err := apiserver.Apply(t.Context(), admin, filepath.Join("..", "..", "config", filepath.FromSlash(dir)))
		require.NoError(t, err)
	}
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, refitv1.AddToScheme(scheme))
	config, err := clientcmd.RESTConfigFromKubeConfig(s.Kubeconfig)
	require.NoError(t, err)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}))

	// An API server takes the example of the docs, and no gate about Secrets.
	examples := filepath.Join("..", "..", "docs", "examples")
	_, err = apiserver.Apply(t.Context(), admin, onlyFile(t, filepath.Join(examples, "gates.yaml")))
	require.NoError(t, err)
	var policy refitv1.ChangeManagementPolicy
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "healthy"}, &policy))
	require.Equal(t, refitv1.HoldOnUnknown, policy.Spec.Gates[0].OnError, "defaults are filled in")
	policy.Spec.Gates[2].CEL.Objects[0].APIVersion, policy.Spec.Gates[2].CEL.Objects[0].Kind = "v1", "Secret"
	require.ErrorContains(t, c.Update(t.Context(), &policy), "a gate can't be about Secrets")

	shop := refitv1.GateObject{Name: "shop", Cluster: refitv1.ManagementCluster, APIVersion: "apps/v1", Kind: "Deployment", ObjectName: "shop"}
	gate := func(o refitv1.GateObject, expression string) *health.Gate {
		gates, err := health.Compile([]refitv1.HealthGate{{Name: "g", CEL: &refitv1.CELGate{Expression: expression, Objects: []refitv1.GateObject{o}}}})
		require.NoError(t, err)
		return gates[0]
	}
	ready := gate(shop, "shop.status.?readyReplicas.orValue(0) >= 2")
	refit := newAsker(t, apitest.Refit(t, s, scheme))
	ask := func(a *health.Asker, g *health.Gate) health.Answer {
		t.Helper()
		answer, err := a.Ask(t.Context(), health.Policy{NamespacedName: client.ObjectKey{Namespace: "fleet", Name: "healthy"}}, g, "c1", time.Now())
		require.NoError(t, err)
		return answer
	}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shop"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "shop"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "shop", Image: "registry.example.org/shop:1"}}},
		}},
	}
	require.NoError(t, c.Create(t.Context(), d))
	answer := ask(refit, ready)
	require.Equal(t, refitv1.GateUnknown, answer.State)
	require.Contains(t, answer.Says, `cannot get resource "deployments" in API group "apps"`, "it says what is missing")

	role := metav1.ObjectMeta{Namespace: "fleet", Name: "refit-gates"}
	require.NoError(t, c.Create(t.Context(), &rbacv1.Role{ObjectMeta: role, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get"}}}}))
	require.NoError(t, c.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: role, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "refit-system", Name: "refit"}},
	}))
	require.Eventually(t, func() bool { return ask(refit, ready).State == refitv1.GateFailing }, time.Minute, 100*time.Millisecond)
	d.Status.Replicas, d.Status.ReadyReplicas = 3, 2
	require.NoError(t, c.Status().Update(t.Context(), d))
	require.Equal(t, refitv1.GatePassing, ask(refit, ready).State)

	// A right to read what has no namespace does not make a gate read it: the API server ignores which namespace is asked for.
	namespace := gate(refitv1.GateObject{Name: "o", Cluster: refitv1.ManagementCluster, APIVersion: "v1", Kind: "Namespace", ObjectName: "kube-system"}, "o.metadata.name == 'kube-system'")
	answer = ask(newAsker(t, c), namespace)
	require.Equal(t, refitv1.GateUnknown, answer.State)
	require.Contains(t, answer.Says, "is in no namespace, and a gate reads the management cluster in the policy's only")
}

// onlyFile returns a directory with one file alone.
func onlyFile(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o600))
	return dir
}

// newAsker returns an Asker that runs.
func newAsker(t *testing.T, management client.Reader) *health.Asker {
	t.Helper()
	a := health.NewAsker(health.Sources{Management: management}, clock.RealClock{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Start(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return a
}
