//go:build e2e

package rollback

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/test/apiserver/apitest"
)

// TestOnARealAPIServer has a real API server merge, by Cluster API's own schemas, what is written with the rights that refit has.
func TestOnARealAPIServer(t *testing.T) {
	server := apitest.Start(t, envtest.CRDInstallOptions{CRDs: apitest.ClusterAPI(t, infraKind)})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	admin, err := client.NewWithWatch(server.Config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	require.NoError(t, admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: machineKey.Namespace}}))
	_, err = apiserver.Apply(t.Context(), admin, filepath.Join("..", "..", "config", "rbac"))
	require.NoError(t, err)
	refit := apitest.Refit(t, server, scheme)
	r, w := &Rollback{Writer: refit, Live: refit}, &world{admin, t}

	w.withWorker()
	p, err := r.Plan(t.Context(), machineKey)
	require.NoError(t, err)
	require.NotEmpty(t, p.Change)
	stale := *p
	require.NoError(t, r.Write(t.Context(), p))
	require.True(t, apierrors.IsConflict(r.Write(t.Context(), &stale)), "what has changed since is not written over")
	require.Equal(t, fields{"size": "small", "good": true, "providerID": "acme://1"}, w.spec(infraKind))
	require.Equal(t, fields{
		"files": []any{file("one\n")}, "joinConfiguration": fields{"nodeRegistration": fields{"name": "n"}},
		"clusterConfiguration": fields{"controlPlaneEndpoint": "10.0.0.1:6443"},
	}, w.spec(configKind))
	require.Equal(t, "v1.36.0", w.spec(kindOfCluster("Machine")).(fields)["version"])
	p, err = r.Plan(t.Context(), machineKey)
	require.NoError(t, err)
	require.Empty(t, p.Change)
	w.applied(machineSetManager, infraKind, fields{"size": "large"}, nil)
	require.Equal(t, fields{"size": "large", "providerID": "acme://1"}, w.spec(infraKind), "its fields are still the owner's")

	for _, kind := range []schema.GroupVersionKind{kindOfCluster("Machine"), configKind, infraKind} {
		require.NoError(t, admin.Delete(t.Context(), w.get(kind, machineKey.Name)))
	}
	require.NoError(t, admin.Delete(t.Context(), w.get(templateOf(infraKind), "good")))
	w.withControlPlane()
	p, err = r.Plan(t.Context(), machineKey)
	require.NoError(t, err)
	require.Equal(t, []string{`bootstrapConfig spec.files[path="/etc/a"].content`}, paths(p))
	require.NoError(t, r.Write(t.Context(), p))
	p, err = r.Plan(t.Context(), machineKey)
	require.NoError(t, err)
	require.Empty(t, p.Change)
}
