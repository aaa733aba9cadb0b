package nodedisruption

import (
	"context"
	"errors"
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
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/files"
)

var errDown = errors.New("the API server is down")

type (
	spec = refitv1.NodeDisruptionPolicySpec
	edit = func(*spec)
)

// policy is one of the namespace fleet.
func policy(name string, edits ...edit) *refitv1.NodeDisruptionPolicy {
	p := &refitv1.NodeDisruptionPolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: name, UID: types.UID("uid-" + name), Generation: 1,
	}}
	for _, e := range edits {
		e(&p.Spec)
	}
	return p
}

func takes(actions ...refitv1.DisruptionAction) refitv1.Disruption {
	return refitv1.Disruption{Actions: actions}
}

func act(t refitv1.DisruptionActionType, unit ...string) refitv1.DisruptionAction {
	a := refitv1.DisruptionAction{Type: t}
	if len(unit) > 0 {
		a.Unit = unit[0]
	}
	return a
}

// file has an entry for a path.
func file(path string, actions ...refitv1.DisruptionAction) edit {
	return func(s *spec) {
		s.Files = append(s.Files, refitv1.FileDisruption{Path: path, Disruption: takes(actions...)})
	}
}

func roles(all ...refitv1.Role) edit { return func(s *spec) { s.Selector.Roles = all } }

func clusters(l map[string]string) edit { return func(s *spec) { s.Selector.Clusters.MatchLabels = l } }

func inert(group, kind string, paths ...string) edit {
	return func(s *spec) {
		s.InertFields = append(s.InertFields, refitv1.InertField{Group: group, Kind: kind, Paths: paths})
	}
}

// compiled are the policies as they are read.
func compiled(all ...*refitv1.NodeDisruptionPolicy) []*Policy {
	var out []*Policy
	for _, p := range all {
		out = append(out, Compile(p))
	}
	return out
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
	t        testing.TB
	policies *Policies
	// built is how often updaters were made, and reads how often something was read.
	built, reads int
	down         bool
}

// Get implements client.Reader.
func (w *world) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if w.reads++; w.down {
		return errDown
	}
	return w.Client.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (w *world) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if w.reads++; w.down {
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
	w.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&refitv1.NodeDisruptionPolicy{}).Build()
	w.policies = w.newPolicies()
	require.NoError(t, w.policies.Prime(t.Context()))
	return w
}

func (w *world) newPolicies() *Policies {
	return NewPolicies(w, disruption.BuiltinRules(), func(e Effective) (*updaters.Registry, error) {
		w.built++
		return updaters.NewRegistry(files.New(e.Rules))
	})
}

// reread has the policies read one of them again.
func (w *world) reread(name string) ctrl.Result {
	w.t.Helper()
	result, err := w.policies.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "fleet", Name: name}})
	require.NoError(w.t, err)
	return result
}

// selected is what holds for a machine.
func (w *world) selected(s inplace.Subject) *Selected {
	w.t.Helper()
	out, err := w.policies.Select(w.t.Context(), s)
	require.NoError(w.t, err)
	return out
}

// get reads a policy by its name.
func (w *world) get(name string) *refitv1.NodeDisruptionPolicy {
	w.t.Helper()
	var p refitv1.NodeDisruptionPolicy
	require.NoError(w.t, w.Client.Get(w.t.Context(), types.NamespacedName{Namespace: "fleet", Name: name}, &p))
	return &p
}

// change changes a policy as an API server does.
func (w *world) change(name string, edits ...edit) {
	w.t.Helper()
	p := w.get(name)
	for _, e := range edits {
		e(&p.Spec)
	}
	p.Generation++
	require.NoError(w.t, w.Update(w.t.Context(), p))
}
