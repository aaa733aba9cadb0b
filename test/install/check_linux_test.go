//go:build e2e

package install

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/test/lab"
)

// finding is what refit check -o json says about one thing.
type finding struct{ Check, Level, Object, Message string }

// findsMistakes plants mistakes, one after the other, where refit is installed, and requires that refit check names each. What
// follows from one it may name, too; when all have been mended, it has to find nothing more of what is refit's own and Cluster API's managers'.
func (i *installation) findsMistakes(ctx context.Context, t *testing.T) {
	require.NoError(t, i.DeployManagers(ctx))
	for name, tc := range map[string]struct {
		plant              func(context.Context, *testing.T) (undo func())
		check, level, says string
	}{
		"a feature gate is off":     {i.switchOff, "feature-gates", "Error", "InPlaceUpdates is off"},
		"another authority":         {i.changeAuthority, "extension", "Error", "x509"},
		"no label":                  {i.unlabel, "extension-namespace", "Warning", "no ExtensionConfig is for the namespace"},
		"no NodeAccess":             {func(context.Context, *testing.T) func() { return func() {} }, "node-access", "Error", "have no NodeAccess"},
		"a policy that never opens": {i.closeForEver, "policies", "Warning", "never opens"},
		"a guard that is not there": {i.askForGuard, "guard", "Warning", "no guard is installed"},
		"a guard without --guard":   {i.guard(func(*admissionregistrationv1.ServiceReference) {}), "guard", "Warning", "it has no --guard"},
		"a guard at no Service": {
			i.guard(func(s *admissionregistrationv1.ServiceReference) { s.Name = "nobody" }), "guard", "Error", "refit-system/nobody, which is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			undo := tc.plant(ctx, t)
			defer undo()
			var said string
			err := poll(ctx, func(ctx context.Context) bool {
				said, _ = i.Refit(ctx, "check", "--problems", "-o", "json", "-n", i.cluster.Namespace) // its code says that there are problems
				for _, f := range findings(t, said) {
					if f.Check == tc.check && f.Level == tc.level && strings.Contains(f.Message, tc.says) {
						return true
					}
				}
				return false
			})
			require.NoError(t, err, "it does not say %q about %s: %s", tc.says, tc.check, said)
		})
	}
	require.NoError(t, i.Lab.WaitForExtension(ctx, "refit"))
	said, _ := i.Refit(ctx, "check", "--problems", "-o", "json", "-n", i.cluster.Namespace)
	for _, f := range findings(t, said) {
		require.NotContains(t, []string{"feature-gates", "extension", "certificate", "admission", "guard", "policies", "refit", "leader"}, f.Check, "all was mended: %+v", f)
	}
}

func findings(t *testing.T, said string) []finding {
	t.Helper()
	var all []finding
	if begin := strings.IndexAny(said, "[{"); begin >= 0 {
		_ = json.NewDecoder(strings.NewReader(said[begin:])).Decode(&all) // it is asked again
	}
	return all
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
