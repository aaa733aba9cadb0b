//go:build e2e

package lease

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/test/lab"
)

// With the build tag e2e all cases of the protocol, and its laws, are held against a real API server.

// raceRounds is how often two want the node at once. A real API server takes its time.
const raceRounds = 100

// live is the API server, one for all tests.
var live struct {
	server *apiserver.Server
	client client.WithWatch
}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	// envtest logs through controller-runtime, which complains if nobody says where to.
	ctrl.SetLogger(logr.Discard())
	if err := flag.Set("rapid.checks", "15"); err != nil {
		return 0, err
	}
	ctx := context.Background()
	binaries, err := lab.Build(ctx, os.Stderr, lab.Etcd, lab.KubeAPIServer)
	if err != nil {
		return 0, err
	}
	live.server, err = apiserver.Start(ctx, apiserver.Options{Etcd: binaries[lab.Etcd], KubeAPIServer: binaries[lab.KubeAPIServer]})
	if err != nil {
		return 0, err
	}
	defer func() {
		if stopErr := live.server.Stop(); err == nil {
			err = stopErr
		}
	}()
	if live.client, err = client.NewWithWatch(live.server.Config, client.Options{}); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// newWorkload returns the API server, emptied of what earlier tests have left and with the Node that tests begin with.
func newWorkload(t testingT) *workload {
	t.Helper()
	s := &story{made: map[string]metav1.Time{}}
	empty(t)
	require.NoError(t, live.client.Create(t.Context(), testNode()))
	return &workload{
		WithWatch: interceptor.NewClient(live.client, s.funcs()), t: t, time: time.Now,
		withoutMaintenances: func() { uninstallMaintenances(t) },
	}
}

// A story is what tests tell of the past, which a real API server does not believe: who has written what, and when.
type story struct {
	mu   sync.Mutex
	made map[string]metav1.Time // when NodeMaintenances were, by name
}

func (s *story) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if nm, ok := obj.(*unstructured.Unstructured); ok {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.made[nm.GetName()] = nm.GetCreationTimestamp()
			}
			return c.Create(ctx, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := c.List(ctx, list, opts...); err != nil {
				return err
			}
			if nms, ok := list.(*unstructured.UnstructuredList); ok {
				s.mu.Lock()
				defer s.mu.Unlock()
				for i := range nms.Items {
					nms.Items[i].SetCreationTimestamp(s.made[nms.Items[i].GetName()])
				}
			}
			return nil
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if n, ok := obj.(*corev1.Node); ok {
				n.ManagedFields = []metav1.ManagedFieldsEntry{{}} // nobody has
			}
			return c.Update(ctx, obj, opts...)
		},
	}
}

// empty removes all that tests make, and makes the Namespaces and the type that they expect.
func empty(t testingT) {
	ctx, c := t.Context(), live.client
	installMaintenances(t)
	for _, namespace := range []string{DefaultNamespace, maintenanceKey.Namespace} {
		err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		require.True(t, err == nil || apierrors.IsAlreadyExists(err), err)
	}
	removeNamespace(t, "locks")
	maintenances := &unstructured.UnstructuredList{}
	maintenances.SetGroupVersionKind(NodeMaintenanceGVK.GroupVersion().WithKind(NodeMaintenanceGVK.Kind + "List"))
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &coordinationv1.LeaseList{}, &appsv1.DaemonSetList{}, maintenances} {
		require.NoError(t, c.List(ctx, list))
		require.NoError(t, meta.EachListItem(list, func(o runtime.Object) error { return discard(ctx, o.(client.Object)) }))
	}
}

// discard removes an object, whatever keeps it.
func discard(ctx context.Context, obj client.Object) error {
	// The API server keeps Leases of its own, about itself.
	if obj.GetNamespace() == metav1.NamespaceSystem && obj.GetName() != "kured" {
		return nil
	}
	if len(obj.GetFinalizers()) > 0 {
		obj.SetFinalizers(nil)
		if err := live.client.Update(ctx, obj); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return client.IgnoreNotFound(live.client.Delete(ctx, obj))
}

// removeNamespace removes an empty Namespace, which the API server itself does not: a controller says when it is empty.
func removeNamespace(t testingT, name string) {
	ctx, n := t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(t, client.IgnoreNotFound(live.client.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(name))))
	require.NoError(t, client.IgnoreNotFound(live.client.Delete(ctx, n)))
	if err := live.client.Get(ctx, client.ObjectKeyFromObject(n), n); apierrors.IsNotFound(err) {
		return
	}
	n.Spec.Finalizers = nil
	require.NoError(t, live.client.SubResource("finalize").Update(ctx, n))
}

// maintenanceCRD is that of the node-maintenance-operator, as far as refit looks at it.
func maintenanceCRD() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "nodemaintenances." + NodeMaintenanceGVK.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: NodeMaintenanceGVK.Group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: NodeMaintenanceGVK.Kind, ListKind: NodeMaintenanceGVK.Kind + "List",
				Plural: "nodemaintenances", Singular: "nodemaintenance",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: NodeMaintenanceGVK.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true),
				}},
			}},
		},
	}
}

// installed reports whether the API server serves NodeMaintenances, of which only tests decide.
var installed bool

func installMaintenances(t testingT) {
	if installed {
		return
	}
	options := envtest.CRDInstallOptions{MaxTime: 2 * time.Minute, CRDs: []*apiextensionsv1.CustomResourceDefinition{maintenanceCRD()}}
	_, err := envtest.InstallCRDs(live.server.Config, options)
	require.NoError(t, err)
	installed = true
}

func uninstallMaintenances(t testingT) {
	installed = false
	options := envtest.CRDInstallOptions{MaxTime: 2 * time.Minute, CRDs: []*apiextensionsv1.CustomResourceDefinition{maintenanceCRD()}}
	require.NoError(t, envtest.UninstallCRDs(live.server.Config, options))
	// A client that asks for the first time is told what the API server serves now.
	require.Eventually(t, func() bool {
		fresh, err := client.New(live.server.Config, client.Options{})
		require.NoError(t, err)
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(NodeMaintenanceGVK)
		return meta.IsNoMatchError(fresh.List(t.Context(), list))
	}, time.Minute, 100*time.Millisecond)
}
