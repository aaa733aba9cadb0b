//go:build e2e

package install

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/shard"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/test/lab"
)

// The kinds of objects that are patched.
var (
	definition        = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	deployment        = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	secret            = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	webhook           = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"}
	extensionConfig   = runtimev1.GroupVersion.WithKind("ExtensionConfig")
	clusterKind       = clusterv1.GroupVersion.WithKind("Cluster")
	machineDeployment = clusterv1.GroupVersion.WithKind("MachineDeployment")
	controlPlane      = schema.GroupVersionKind{Group: "controlplane.cluster.x-k8s.io", Version: clusterv1.GroupVersion.Version, Kind: "KubeadmControlPlane"}
)

// kubeconfigOfNobody leads to a port at which nobody listens.
const kubeconfigOfNobody = `{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],
clusters: [{name: x, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: x, user: {token: x}}]}`

// findParts finds out how the parts of the Cluster are called.
func (i *installation) findParts(ctx context.Context, t *testing.T) {
	t.Helper()
	var cluster clusterv1.Cluster
	require.NoError(t, i.Client.Get(ctx, i.cluster.ObjectKey, &cluster))
	var workers clusterv1.MachineDeploymentList
	require.NoError(t, i.Client.List(ctx, &workers, client.InNamespace(i.cluster.Namespace)))
	require.Len(t, workers.Items, 1)
	i.asked, i.logins, i.controlPlane, i.workers = i.cluster.Namespace, "0", cluster.Spec.ControlPlaneRef.Name, workers.Items[0].Name
}

// patched has a JSON patch change an object, of which the parts that people write are as before when it is undone.
func (i *installation) patched(kind schema.GroupVersionKind, namespace, name, patch string) plant {
	return func(ctx context.Context, t *testing.T) func() {
		t.Helper()
		get := func() *unstructured.Unstructured {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(kind)
			require.NoError(t, i.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o))
			return o
		}
		was := get()
		require.NoError(t, i.Client.Patch(ctx, was.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(patch))))
		return func() {
			now := get()
			back := now.DeepCopy()
			back.SetAnnotations(was.GetAnnotations())
			for _, part := range []string{"spec", "data", "webhooks"} {
				if value, ok := was.Object[part]; ok {
					back.Object[part] = value
				}
			}
			require.NoError(t, i.Client.Patch(ctx, back, client.MergeFrom(now)))
		}
	}
}

// both has two mistakes be made, the later one be taken back first.
func both(first, second plant) plant {
	return func(ctx context.Context, t *testing.T) func() {
		t.Helper()
		undoFirst := first(ctx, t)
		undoSecond := second(ctx, t)
		return func() { undoSecond(); undoFirst() }
	}
}

// paused has Cluster API leave the Cluster alone, so that nothing comes of what is planted in its parts.
func (i *installation) paused() plant {
	return i.patched(clusterKind, i.cluster.Namespace, i.cluster.Name, `[{"op":"add","path":"/spec/paused","value":true}]`)
}

// elsewhere has refit check asked about a namespace without Clusters.
func (i *installation) elsewhere(context.Context, *testing.T) func() {
	was := i.asked
	i.asked = "default"
	return func() { i.asked = was }
}

// abandonLease leaves a Lease of an election that nobody holds any more, as a refit does that has ended in another namespace.
func (i *installation) abandonLease(ctx context.Context, t *testing.T) func() {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: shard.LeaderLease}}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new("gone"), new(int32(15))
	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-time.Hour)))
	require.NoError(t, i.Client.Create(ctx, lease))
	return func() { require.NoError(t, i.Client.Delete(ctx, lease)) }
}

// healthCheck makes a MachineHealthCheck of no Machine.
func (i *installation) healthCheck(checks string) plant {
	return func(ctx context.Context, t *testing.T) func() {
		t.Helper()
		mhc := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: i.cluster.Namespace, Name: "quick"}}
		mhc.Spec.ClusterName, mhc.Spec.Selector.MatchLabels = i.cluster.Name, map[string]string{"example.org/of": "nobody"}
		require.NoError(t, json.Unmarshal([]byte(checks), &mhc.Spec.Checks))
		require.NoError(t, i.Client.Create(ctx, mhc))
		return func() { require.NoError(t, i.Client.Delete(ctx, mhc)) }
	}
}

// takeRights leaves refit without rights in the workload cluster.
func (i *installation) takeRights(ctx context.Context, t *testing.T) func() {
	t.Helper()
	workload, err := i.cluster.WorkloadClient(ctx)
	require.NoError(t, err)
	set := func(rules []rbacv1.PolicyRule) (was []rbacv1.PolicyRule) {
		var role rbacv1.ClusterRole
		require.NoError(t, workload.Get(ctx, client.ObjectKey{Name: "refit-workload"}, &role))
		was, role.Rules = role.Rules, rules
		require.NoError(t, workload.Update(ctx, &role))
		return was
	}
	was := set(nil)
	return func() { set(was) }
}

func (i *installation) switchOff(ctx context.Context, t *testing.T) func() {
	t.Helper()
	var d appsv1.Deployment
	require.NoError(t, i.Client.Get(ctx, client.ObjectKey{Namespace: "capi-system", Name: "capi-controller-manager"}, &d))
	was := d.DeepCopy()
	args := d.Spec.Template.Spec.Containers[0].Args
	for n := range args {
		args[n] = strings.Replace(args[n], "InPlaceUpdates=true", "InPlaceUpdates=false", 1)
	}
	require.NotEqual(t, was.Spec.Template.Spec.Containers[0].Args, args)
	require.NoError(t, i.Client.Patch(ctx, &d, client.MergeFrom(was)))
	return func() {
		now := d.DeepCopy()
		d.Spec = was.Spec
		require.NoError(t, i.Client.Patch(ctx, &d, client.MergeFrom(now)))
	}
}

// changeAuthority has Cluster API verify refit by the API server's authority, which did not sign refit's certificate.
func (i *installation) changeAuthority(ctx context.Context, t *testing.T) func() {
	t.Helper()
	set := func(change func(*runtimev1.ExtensionConfig)) {
		config := i.extension(ctx, t)
		was := config.DeepCopy()
		change(config)
		require.NoError(t, i.Client.Patch(ctx, config, client.MergeFrom(was)))
	}
	from := ""
	set(func(config *runtimev1.ExtensionConfig) {
		from = config.Annotations[runtimev1.InjectCAFromSecretAnnotation]
		delete(config.Annotations, runtimev1.InjectCAFromSecretAnnotation)
		config.Spec.ClientConfig.CABundle = i.Lab.Config.CAData
	})
	require.NotEmpty(t, from)
	return func() {
		set(func(config *runtimev1.ExtensionConfig) {
			config.Annotations = map[string]string{runtimev1.InjectCAFromSecretAnnotation: from}
		})
	}
}

// unlabel leaves the namespace without the label that the ExtensionConfig asks for, which it gets when that is undone.
func (i *installation) unlabel(ctx context.Context, t *testing.T) func() {
	t.Helper()
	return func() {
		_, err := i.Run(ctx, "", nil, lab.Kubectl, "label", "namespace", i.cluster.Namespace, "capi-refit.dev/in-place-updates=enabled", "--overwrite")
		require.NoError(t, err)
	}
}

// closeForEver makes a policy that the API server would refuse if it asked refit.
func (i *installation) closeForEver(ctx context.Context, t *testing.T) func() {
	t.Helper()
	var asks admissionregistrationv1.ValidatingWebhookConfiguration
	require.NoError(t, i.Client.Get(ctx, client.ObjectKey{Name: "refit"}, &asks))
	require.NoError(t, i.Client.Delete(ctx, asks.DeepCopy()))
	policy := &refitv1.ChangeManagementPolicy{}
	policy.Namespace, policy.Name = i.cluster.Namespace, "never"
	policy.Spec.Strategy = schedule.MaintenanceScheduleStrategy
	policy.Spec.MaintenanceSchedule = &schedule.MaintenanceSchedule{Permit: []schedule.Permit{{Recurrence: "FREQ=DAILY;UNTIL=20200101T000000Z"}}}
	require.NoError(t, poll(ctx, func(ctx context.Context) bool { return i.Client.Create(ctx, policy) == nil }), "the API server goes on to ask")
	return func() {
		require.NoError(t, i.Client.Delete(ctx, policy))
		_, err := i.Run(ctx, "", nil, lab.Kubectl, "patch", "changemanagementpolicy", "-n", policy.Namespace, policy.Name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		if err != nil {
			require.ErrorContains(t, err, "not found")
		}
		asks.ResourceVersion, asks.UID = "", ""
		require.NoError(t, i.Client.Create(ctx, &asks))
	}
}

// askForGuard makes a policy that asks for more than the guard's default, where there is none.
func (i *installation) askForGuard(ctx context.Context, t *testing.T) func() {
	t.Helper()
	policy := &refitv1.ChangeManagementPolicy{}
	policy.Namespace, policy.Name = i.cluster.Namespace, "strict"
	policy.Spec.Strategy, policy.Spec.Guard, policy.Spec.DeletionGrace = schedule.PermissiveStrategy, refitv1.StrictGuard, "0s"
	require.NoError(t, i.Client.Create(ctx, policy))
	return func() { require.NoError(t, i.Client.Delete(ctx, policy)) }
}

// guard has the API server ask the guard, which refit does not serve as it is installed here, at a Service.
func (i *installation) guard(at func(*admissionregistrationv1.ServiceReference)) func(context.Context, *testing.T) (undo func()) {
	return func(ctx context.Context, t *testing.T) func() {
		t.Helper()
		content, err := os.ReadFile(filepath.Join("..", "..", "config", "components", "guard", "validatingwebhook.yaml"))
		require.NoError(t, err)
		asks := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		require.NoError(t, yaml.UnmarshalStrict(content, asks))
		at(asks.Webhooks[0].ClientConfig.Service)
		require.NoError(t, i.Client.Create(ctx, asks))
		return func() { require.NoError(t, i.Client.Delete(ctx, asks)) }
	}
}
