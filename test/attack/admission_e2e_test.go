//go:build e2e

package attack

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/audit"
	"github.com/capi-refit/refit/internal/audit/heads"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/test/apiserver/apitest"
)

// TestARealAPIServerRefuses has a real API server with refit's CRDs and RBAC, and attacks it.
func TestARealAPIServerRefuses(t *testing.T) {
	config := filepath.Join("..", "..", "config")
	server := apitest.Start(t, envtest.CRDInstallOptions{Paths: []string{filepath.Join(config, "crd", "bases")}})
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, refitv1.AddToScheme(scheme))
	admin, err := client.New(server.Config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	_, err = apiserver.Apply(t.Context(), admin, filepath.Join(config, "rbac"))
	require.NoError(t, err)

	t.Run("policies that end the system", func(t *testing.T) {
		for _, unit := range disruption.ReservedUnits(disruption.Restart) {
			err := admin.Create(t.Context(), restartPolicy(unit))
			require.True(t, apierrors.IsInvalid(err), "%s: %v", unit, err)
		}
	})
	t.Run("but not those that restart a service", func(t *testing.T) {
		for _, unit := range []string{"ssh.service", "crio.service", "containerd.service", "kubelet.service", "app.socket", "systemd-sysctl.service"} {
			require.NoError(t, admin.Create(t.Context(), restartPolicy(unit)), unit)
		}
	})
	t.Run("repositories that need no signature", func(t *testing.T) {
		s := &refitv1.KubernetesSource{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}}
		s.Spec.Packages = &refitv1.PackagesSource{Manager: refitv1.APTPackages, Repository: "deb [trusted=0x1] http://evil/ /"}
		require.ErrorContains(t, admin.Create(t.Context(), s), "packages need a signature")
	})
	t.Run("refit other rights than those that its audit log needs", func(t *testing.T) {
		refit := apitest.Refit(t, server, scheme)
		publishes(t, refit)
		for _, name := range []string{"other", heads.KeyName} {
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "refit-system", Name: name}}
			require.True(t, apierrors.IsForbidden(refit.Delete(t.Context(), s)))
			require.True(t, apierrors.IsForbidden(refit.Update(t.Context(), s)))
		}
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: heads.Name}}
		require.True(t, apierrors.IsForbidden(refit.Create(t.Context(), m)))
	})
}

func restartPolicy(unit string) *refitv1.NodeDisruptionPolicy {
	p := &refitv1.NodeDisruptionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "p-"}}
	p.Spec.Files = []refitv1.FileDisruption{{Path: "/etc/motd", Disruption: refitv1.Disruption{
		Actions: []refitv1.DisruptionAction{{Type: refitv1.RestartDisruption, Unit: unit}},
	}}}
	return p
}

// publishes has refit publish heads with the rights that it is installed with, for two containers of a pod.
func publishes(t *testing.T, refit client.Client) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	for container := range 2 {
		l, err := audit.Open(path, clock.RealClock{}, audit.Options{Instance: "refit-a_1"})
		require.NoError(t, err)
		p := &heads.Publisher{
			Client: refit, Live: refit, Namespace: "refit-system", Log: "refit-a", Audit: l, Clock: clock.RealClock{}, Logger: logr.Discard(),
		}
		p.Prepare(t.Context())
		_, err = l.Append(audit.Entry{Event: audit.EventSent, Verb: "apply"})
		require.NoError(t, err)
		p.Prepare(t.Context())
		require.NoError(t, l.Close())
		var m corev1.ConfigMap
		require.NoError(t, refit.Get(t.Context(), client.ObjectKey{Namespace: "refit-system", Name: heads.Name}, &m))
		all, err := audit.ParseHeads([]byte(m.Data["refit-a.json"]))
		require.NoError(t, err)
		key, err := audit.ParsePublicKey([]byte(m.Data[audit.PublicKeyKey]))
		require.NoError(t, err)
		require.NoError(t, all[0].Verify(key))
		require.Equal(t, int64(container+1), all[0].Seq)
		require.WithinDuration(t, time.Now(), all[0].Time, time.Hour)
	}
}
