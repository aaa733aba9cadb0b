package bootimage

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
)

const infrastructureGroup = "infrastructure.cluster.x-k8s.io"

var errDown = errors.New("the API server is down")

type (
	spec = refitv1.BootImagePolicySpec
	edit = func(*spec)
)

// policy is one of the namespace fleet. It lets the images of all machines change.
func policy(name string, edits ...edit) *refitv1.BootImagePolicy {
	p := &refitv1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: name, UID: types.UID("uid-" + name), Generation: 1,
	}}
	p.Spec.Selection.Mode = refitv1.AllBootImages
	for _, e := range edits {
		e(&p.Spec)
	}
	return p
}

func mode(m refitv1.BootImageMode) edit { return func(s *spec) { s.Selection.Mode = m } }

// partial is for the machines of a pool.
func partial(pool string) edit {
	return func(s *spec) {
		s.Selection = refitv1.BootImageSelection{
			Mode: refitv1.PartialBootImages, Machines: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}},
		}
	}
}

func minimum(version string) edit { return func(s *spec) { s.MinimumVersion = version } }

func roles(all ...refitv1.Role) edit { return func(s *spec) { s.Selector.Roles = all } }

func kinds(kind string, paths ...string) edit {
	return func(s *spec) {
		s.Kinds = append(s.Kinds, refitv1.BootImageKind{Group: infrastructureGroup, Kind: kind, Paths: paths})
	}
}

func cluster(name string, labels map[string]string) *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Labels: labels}}
}

// capiMachine is a Machine of the cluster c1 with an infrastructure machine of the same name.
func capiMachine(name, infraKind string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Labels: map[string]string{}}}
	m.Spec.ClusterName, m.Spec.Version = "c1", "v1.36.1"
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrastructureGroup, Kind: infraKind, Name: name}
	for _, e := range edits {
		e(m)
	}
	return m
}

func label(key, value string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) { m.Labels[key] = value }
}

func annotate(key, value string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) { m.Annotations = map[string]string{key: value} }
}

// infraObject is an object of an infrastructure provider with a spec, as it was made.
func infraObject(kind, name string, at ...string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetAPIVersion(infrastructureGroup + "/v1beta1")
	obj.SetKind(kind)
	obj.SetNamespace("fleet")
	obj.SetName(name)
	obj.SetGeneration(1)
	image := at[len(at)-1]
	if err := unstructured.SetNestedField(obj.Object, image, append([]string{"spec"}, at[:len(at)-1]...)...); err != nil {
		panic(err)
	}
	return obj
}

// metal is a Metal3Machine that boots an image.
func metal(name, url string) *unstructured.Unstructured {
	return infraObject("Metal3Machine", name, "image", "url", url)
}

// madeFrom says that an infrastructure machine was made from the template t1, and that its provider has written to it since.
func madeFrom(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj.SetGeneration(2)
	obj.SetAnnotations(map[string]string{
		clusterv1.TemplateClonedFromNameAnnotation:      "t1",
		clusterv1.TemplateClonedFromGroupKindAnnotation: obj.GetKind() + "Template." + infrastructureGroup,
	})
	return obj
}

func metalTemplate(name, url string) *unstructured.Unstructured {
	return infraObject("Metal3MachineTemplate", name, "template", "spec", "image", "url", url)
}

// controlledBy gives an object an owner that controls it.
func controlledBy(obj *unstructured.Unstructured, apiVersion, kind, name string) *unstructured.Unstructured {
	yes := true
	obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, Controller: &yes}})
	return obj
}

// world is a management cluster, a fake of one.
type world struct {
	client.Client
	t        testing.TB
	policies *Policies
	clock    *clocktesting.FakeClock
	events   *events.FakeRecorder
	// reads and lists count what is read of the infrastructure.
	reads, lists int
	down         bool
	writes       int // of statuses
}

// Get implements client.Reader.
func (w *world) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if w.down {
		return errDown
	}
	if _, ok := obj.(*unstructured.Unstructured); ok {
		w.reads++
	}
	return w.Client.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (w *world) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if w.down {
		return errDown
	}
	if _, ok := list.(*unstructured.UnstructuredList); ok {
		w.lists++
	}
	return w.Client.List(ctx, list, opts...)
}

// Status implements client.Client.
func (w *world) Status() client.SubResourceWriter { return &counted{w.Client.Status(), &w.writes} }

type counted struct {
	client.SubResourceWriter
	writes *int
}

func (c *counted) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	*c.writes++
	return c.SubResourceWriter.Update(ctx, obj, opts...)
}

func newWorld(t testing.TB, objects ...client.Object) *world {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, clusterv1.AddToScheme, refitv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	w := &world{
		t: t, events: events.NewFakeRecorder(100),
		clock: clocktesting.NewFakeClock(time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC)),
	}
	for _, crd := range []string{
		"metal3machines", "metal3machinetemplates", "awsmachines", "awsmachinetemplates", "dockermachines", "foomachines",
	} {
		objects = append(objects, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
			Name: crd + "." + infrastructureGroup, Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta1"},
		}})
	}
	objects = append(objects, cluster("c1", map[string]string{"env": "prod"}))
	w.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&refitv1.BootImagePolicy{}).Build()
	w.policies = NewPolicies(w)
	require.NoError(t, w.policies.Prime(t.Context()))
	return w
}

// selected is what policies say of the machines that are asked about.
func (w *world) ask(of inplace.Subject) (keep, names []string, err error) {
	w.t.Helper()
	out, err := w.policies.For(w.t.Context(), of)
	require.NoError(w.t, err)
	return out.Keep, out.Policies, out.Err
}

// get reads a policy by its name.
func (w *world) get(name string) *refitv1.BootImagePolicy {
	w.t.Helper()
	var p refitv1.BootImagePolicy
	require.NoError(w.t, w.Client.Get(w.t.Context(), types.NamespacedName{Namespace: "fleet", Name: name}, &p))
	return &p
}

// change changes a policy as an API server does, and has it read.
func (w *world) change(name string, edits ...edit) {
	w.t.Helper()
	p := w.get(name)
	for _, e := range edits {
		e(&p.Spec)
	}
	p.Generation++
	require.NoError(w.t, w.Update(w.t.Context(), p))
	w.reread(name)
}

func (w *world) reread(name string) {
	w.t.Helper()
	_, err := w.policies.Reconcile(w.t.Context(), request(name))
	require.NoError(w.t, err)
}

func request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "fleet", Name: name}}
}

// record has the image of the Machine m noted, and returns what is noted then, and when it is looked at again.
func (w *world) record() (string, time.Duration) {
	w.t.Helper()
	r := &Recorder{Client: w, Live: w, Policies: w.policies}
	result, err := r.Reconcile(w.t.Context(), request("m"))
	require.NoError(w.t, err)
	var m clusterv1.Machine
	require.NoError(w.t, w.Client.Get(w.t.Context(), request("m").NamespacedName, &m))
	return m.Annotations[refitv1.BootedImageAnnotation], result.RequeueAfter
}

// status is what shows the status of policies.
func (w *world) status() *Status {
	return &Status{Client: w, Live: w, Policies: w.policies, Recorder: w.events, Clock: w.clock}
}

// show has the status of the policy a shown.
func (w *world) show() *refitv1.BootImagePolicyStatus {
	w.t.Helper()
	result, err := w.status().Reconcile(w.t.Context(), request("a"))
	require.NoError(w.t, err)
	require.Equal(w.t, refresh, result.RequeueAfter)
	return &w.get("a").Status
}
