//go:build e2e

package apiserver_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/webhook"
)

// newPolicy returns a policy of a namespace, or of the platform.
func newPolicy(platform bool, name string, spec refitv1.ChangeManagementPolicySpec) client.Object {
	if platform {
		p := &refitv1.ClusterChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.ChangeManagementPolicySpec = spec
		return p
	}
	return &refitv1.ChangeManagementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}
}

func windows(recurrence, zone string) refitv1.ChangeManagementPolicySpec {
	return refitv1.ChangeManagementPolicySpec{Policy: schedule.Policy{
		Strategy:            schedule.MaintenanceScheduleStrategy,
		MaintenanceSchedule: &schedule.MaintenanceSchedule{TimeZone: zone, Permit: []schedule.Permit{{Recurrence: recurrence}}},
	}}
}

// TestPoliciesAreAdmittedByWhatRefitSays is about a real API server that asks refit, with the rights that refit is installed with.
func TestPoliciesAreAdmittedByWhatRefitSays(t *testing.T) {
	o := options(t)
	o.Dir = t.TempDir()
	s := start(t, o)
	admin := connect(t, s.Kubeconfig)
	for _, dir := range []string{filepath.Join("crd", "bases"), "rbac"} {
		_, err := apiserver.Apply(t.Context(), admin, filepath.Join("..", "..", "config", dir))
		require.NoError(t, err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{refitv1.AddToScheme, corev1.AddToScheme, admissionregistrationv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(s.Kubeconfig)
	require.NoError(t, err)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	account, err := apiserver.AccountKubeconfig(t.Context(), config, client.ObjectKey{Namespace: "refit-system", Name: "refit"})
	require.NoError(t, err)
	restricted, err := clientcmd.RESTConfigFromKubeConfig(account)
	require.NoError(t, err)
	refit, err := client.New(restricted, client.Options{Scheme: scheme})
	require.NoError(t, err)
	stop := admit(t, c, refit)

	refuses := func(p client.Object, says string) {
		t.Helper()
		var err error
		require.Eventually(t, func() bool { // the API server takes a moment to serve a new type, and to ask
			err = c.Create(t.Context(), p)
			if err == nil {
				require.NoError(t, c.Delete(t.Context(), p))
				p.SetResourceVersion("")
			}
			return err != nil && !apierrors.IsNotFound(err)
		}, wait, tick)
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		require.ErrorContains(t, err, says)
	}
	for _, platform := range []bool{false, true} {
		refuses(newPolicy(platform, "p", windows("FREQ=WEEKLY;BYDAY=XX", "")), "spec.maintenanceSchedule.permit[0].recurrence")
		refuses(newPolicy(platform, "p", windows("FREQ=DAILY", "Mars/Olympus")), "spec.maintenanceSchedule.timeZone")
		refuses(newPolicy(platform, "p", windows("FREQ=DAILY;UNTIL=20200101", "")), "no window opens within 1000 days")
		require.NoError(t, c.Create(t.Context(), newPolicy(platform, "good", windows("FREQ=DAILY", "Europe/Berlin"))))
	}
	refuses(newPolicy(true, "p", refitv1.ChangeManagementPolicySpec{Policy: schedule.Policy{Strategy: schedule.ManualStrategy}}), "strategy Manual needs overrides: Allow")
	refuses(newPolicy(true, "p", refitv1.ChangeManagementPolicySpec{
		Policy: schedule.Policy{Strategy: schedule.PermissiveStrategy}, Budget: refitv1.Budget{StopAfterFailures: 1},
	}), "only maxConcurrent can be set")

	// What refit itself writes is not asked about again, and its rights are enough for it.
	good := &refitv1.ClusterChangeManagementPolicy{}
	require.NoError(t, refit.Get(t.Context(), client.ObjectKey{Name: "good"}, good))
	require.Equal(t, refitv1.ForbidOverrides, good.Spec.Overrides)
	before := good.DeepCopy()
	good.Finalizers = []string{refitv1.GraceFinalizer}
	require.NoError(t, refit.Patch(t.Context(), good, client.MergeFrom(before)))
	open := true
	good.Status.Open = &open
	require.NoError(t, refit.Status().Update(t.Context(), good))
	require.NoError(t, refit.List(t.Context(), &corev1.NamespaceList{}))
	before = good.DeepCopy()
	good.Spec.MaintenanceSchedule.TimeZone = "Mars/Olympus"
	require.True(t, apierrors.IsInvalid(c.Patch(t.Context(), good, client.MergeFrom(before))))

	// While refit is away nobody is kept from writing policies.
	stop()
	away := newPolicy(false, "away", windows("FREQ=DAILY", "Mars/Olympus"))
	require.NoError(t, c.Create(t.Context(), away))
}

// admit has the API server ask about policies as config/webhook says, and returns what ends that refit answers.
func admit(t *testing.T, c, refit client.Client) (stop func()) {
	t.Helper()
	dir := t.TempDir()
	bundle, err := webhook.WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now())
	require.NoError(t, err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(free.Addr().String())
	require.NoError(t, err)
	require.NoError(t, free.Close())
	number, err := strconv.Atoi(port)
	require.NoError(t, err)

	content, err := os.ReadFile(filepath.Join("..", "..", "config", "webhook", "validatingwebhook.yaml"))
	require.NoError(t, err)
	var asks admissionregistrationv1.ValidatingWebhookConfiguration
	require.NoError(t, yaml.UnmarshalStrict(content, &asks))
	path := *asks.Webhooks[0].ClientConfig.Service.Path
	handler, err := webhook.NewAdmission(path, &changemanagement.Admission{Live: refit, Clock: clock.RealClock{}, Namespace: "refit-system"}, webhook.PolicyReviews, logr.Discard())
	require.NoError(t, err)
	server := webhook.NewAdmissionListener(ctrlwebhook.Options{Host: "127.0.0.1", Port: number, CertDir: dir}, logr.Discard())
	server.Register(path, handler)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	url := "https://127.0.0.1:" + port + path
	asks.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle}
	require.NoError(t, c.Create(t.Context(), &asks))
	return func() {
		cancel()
		require.NoError(t, <-ended)
	}
}
