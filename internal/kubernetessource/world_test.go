package kubernetessource

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
)

var errDown = errors.New("the API server is down")

type (
	spec = refitv1.KubernetesSourceSpec
	edit = func(*spec)
)

// source is one of the namespace fleet, with packages of apt.
func source(name string, edits ...edit) *refitv1.KubernetesSource {
	s := &refitv1.KubernetesSource{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: name, UID: types.UID("uid-" + name), Generation: 1,
	}}
	s.Spec.Packages = &refitv1.PackagesSource{Manager: refitv1.APTPackages}
	for _, e := range edits {
		e(&s.Spec)
	}
	return s
}

func roles(all ...refitv1.Role) edit { return func(s *spec) { s.Selector.Roles = all } }

func clusters(l map[string]string) edit { return func(s *spec) { s.Selector.Clusters.MatchLabels = l } }

func inWindow(s *spec) { s.Staging = refitv1.InWindowStaging }

// unreadable has a manager that is none.
func unreadable(s *spec) { s.Packages.Manager = "zypper" }

// named has versions, of which packages need no checksums.
func named(versions ...string) edit {
	return func(s *spec) {
		for _, v := range versions {
			s.Versions = append(s.Versions, refitv1.SourceVersion{Version: v})
		}
	}
}

// digest is some SHA-256.
var digest = strings.Repeat("0a", 32)

// sums has v1.36.3 with the checksums, each "name" or "name architecture".
func sums(of ...string) edit {
	return func(s *spec) {
		v := refitv1.SourceVersion{Version: "v1.36.3"}
		for _, one := range of {
			name, arch, _ := strings.Cut(one, " ")
			v.Checksums = append(v.Checksums, refitv1.SourceChecksum{Name: name, Architecture: arch, SHA256: digest})
		}
		s.Versions = append(s.Versions, v)
	}
}

func cluster(name string, labels map[string]string) *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Labels: labels}}
}

func machine(name, cluster string, labels map[string]string) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Labels: labels}}
	m.Spec.ClusterName = cluster
	return m
}

// worker is what is asked about a worker of the cluster c1.
var worker = inplace.Subject{Namespace: "fleet", Cluster: "c1"}

// world is a management cluster, a fake of one.
type world struct {
	client.Client
	t       testing.TB
	sources *Sources
	down    bool
}

// Get implements client.Reader.
func (w *world) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if w.down {
		return errDown
	}
	return w.Client.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (w *world) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if w.down {
		return errDown
	}
	return w.Client.List(ctx, list, opts...)
}

func newWorld(t testing.TB, objects ...client.Object) *world {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, refitv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	w := &world{t: t}
	w.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&refitv1.KubernetesSource{}).Build()
	w.sources = New(w)
	require.NoError(t, w.sources.Prime(t.Context()))
	return w
}

// selected returns the name of the source of a machine, or nothing.
func (w *world) selected(s inplace.Subject) string {
	w.t.Helper()
	selected, err := w.sources.For(w.t.Context(), s)
	require.NoError(w.t, err)
	if selected == nil {
		return ""
	}
	return selected.Name
}

// reread has one source read again.
func (w *world) reread(name string) {
	w.t.Helper()
	_, err := w.sources.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "fleet", Name: name}})
	require.NoError(w.t, err)
}

func (w *world) get(name string) *refitv1.KubernetesSource {
	w.t.Helper()
	var s refitv1.KubernetesSource
	require.NoError(w.t, w.Get(w.t.Context(), types.NamespacedName{Namespace: "fleet", Name: name}, &s))
	return &s
}

// change changes a source as an API server does.
func (w *world) change(name string, edits ...edit) {
	w.t.Helper()
	s := w.get(name)
	for _, e := range edits {
		e(&s.Spec)
	}
	s.Generation++
	require.NoError(w.t, w.Update(w.t.Context(), s))
}
