//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// aGateHoldsNewStarts has a Deployment of the management cluster, as far as its status says, not be ready, and then be.
func (u *suite) aGateHoldsNewStarts(ctx context.Context, t *testing.T) {
	before := u.identities(ctx, t)
	spec := refitv1.ChangeManagementPolicySpec{
		Policy: schedule.Policy{Strategy: schedule.PermissiveStrategy}, Hold: refitv1.HoldAll,
		Gates: []refitv1.HealthGate{{Name: "shop", Interval: "10s", Timeout: "5s", CEL: &refitv1.CELGate{
			Expression: "shop.status.?readyReplicas.orValue(0) >= 2",
			Objects: []refitv1.GateObject{
				{Name: "shop", Cluster: refitv1.ManagementCluster, APIVersion: "apps/v1", Kind: "Deployment", ObjectName: "shop"},
			},
		}}},
	}
	u.policy(ctx, t, "healthy", spec)
	f := file(app+"/gated", "when the shop is ready\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))

	// refit may not read Deployments by itself.
	u.heldByGate(ctx, t, schedule.GateUnknown, "cannot get resource")
	u.nowhere(ctx, t, f.Path)

	// There is no controller of Deployments here: what its status says is what is written there.
	shop := u.shop(ctx, t)
	u.mayReadDeployments(ctx, t)
	mu := u.heldByGate(ctx, t, schedule.GateFailed, "shop.status.?readyReplicas.orValue(0) is 1")
	require.Contains(t, mu.Status.Message, "policy healthy: health gate shop does not hold since ")
	u.metric(ctx, t, `refit_change_management_gate_open{gate="shop",namespace="`+u.Cluster.Namespace+`",policy="healthy"}`, "0")
	time.Sleep(3 * time.Second) // time to begin, were it allowed
	u.nowhere(ctx, t, f.Path)

	u.readyReplicas(ctx, t, shop, 2)
	u.rollOut(ctx, t, before) // it is asked again within seconds
	for _, name := range u.workers(ctx, t) {
		require.NoError(t, u.CheckFile(ctx, name, f))
	}
	u.metric(ctx, t, `refit_change_management_gate_open{gate="shop",namespace="`+u.Cluster.Namespace+`",policy="healthy"}`, "1")
}

// heldByGate waits for the update of one of the workers to wait for a health gate, and say why.
func (u *suite) heldByGate(ctx context.Context, t *testing.T, reason schedule.Reason, says string) *refitv1.MachineUpdate {
	t.Helper()
	return u.anyWorker(ctx, t, func(mu *refitv1.MachineUpdate) bool {
		return waiting(refitv1.ReasonHealth)(mu) && permitted(mu) == string(reason) && strings.Contains(mu.Status.Message, says)
	})
}

// shop makes a Deployment as one with one ready replica, and removes it when the scenario ends.
func (u *suite) shop(ctx context.Context, t *testing.T) *appsv1.Deployment {
	t.Helper()
	const name = "shop"
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.Cluster.Namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "registry.example.org/shop:1"}}},
			},
		},
	}
	u.create(ctx, t, d)
	u.readyReplicas(ctx, t, d, 1)
	return d
}

func (u *suite) readyReplicas(ctx context.Context, t *testing.T, d *appsv1.Deployment, ready int32) {
	t.Helper()
	before := d.DeepCopy()
	d.Status.Replicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas = 3, ready, ready
	require.NoError(t, u.Client.Status().Patch(ctx, d, client.MergeFrom(before)))
}

// mayReadDeployments gives refit the right that docs/policies.md has people give it for a gate.
func (u *suite) mayReadDeployments(ctx context.Context, t *testing.T) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: u.Cluster.Namespace, Name: "refit-gates"}
	u.create(ctx, t, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get"}}}})
	u.create(ctx, t, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "refit-system", Name: "refit"}},
	})
}

// create makes an object, and removes it when the scenario ends.
func (u *suite) create(ctx context.Context, t *testing.T, obj client.Object) {
	t.Helper()
	require.NoError(t, u.Client.Create(ctx, obj))
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(u.Client.Delete(context.WithoutCancel(ctx), obj)))
	})
}
