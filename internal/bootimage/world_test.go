package bootimage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
)

const infrastructureGroup = "infrastructure.cluster.x-k8s.io"

type (
	spec = refitv1.BootImagePolicySpec
	edit = func(*spec)
)

var kind policykindtest.Kind[*refitv1.BootImagePolicy, spec]

// policy is one of the namespace fleet. It lets the images of all machines change.
func policy(name string, edits ...edit) *refitv1.BootImagePolicy {
	return kind.Policy(name, append([]edit{mode(refitv1.AllBootImages)}, edits...)...)
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

func kinds(kind string, paths ...string) edit {
	return func(s *spec) {
		s.Kinds = append(s.Kinds, refitv1.BootImageKind{Group: infrastructureGroup, Kind: kind, Paths: paths})
	}
}

var (
	roles    = kind.Roles
	cluster  = policykindtest.Cluster
	request  = policykindtest.Request
	label    = policykindtest.Label
	annotate = policykindtest.Annotation
)

// capiMachine is a Machine of the cluster c1 with an infrastructure machine of the same name.
func capiMachine(name, infraKind string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	m := policykindtest.Machine(name, "c1")
	m.Spec.Version = "v1.36.1"
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrastructureGroup, Kind: infraKind, Name: name}
	for _, e := range edits {
		e(m)
	}
	return m
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

// world is a management cluster with its policies.
type world struct {
	*policykindtest.Policies[*refitv1.BootImagePolicy, spec]
	policies *Policies
	// reads and lists count what is read of the infrastructure.
	reads, lists int
}

func newWorld(t testing.TB, objects ...client.Object) *world {
	for _, crd := range []string{
		"metal3machines", "metal3machinetemplates", "awsmachines", "awsmachinetemplates", "dockermachines", "foomachines",
	} {
		objects = append(objects, managementtest.CRD(crd, schema.GroupVersionKind{Group: infrastructureGroup, Version: "v1beta1"}))
	}
	objects = append(objects, cluster("c1", map[string]string{"env": "prod"}))
	w := &world{Policies: kind.World(t, policykindtest.With(objects...))}
	w.OnRead = func(obj runtime.Object) {
		switch obj.(type) {
		case *unstructured.Unstructured:
			w.reads++
		case *unstructured.UnstructuredList:
			w.lists++
		}
	}
	w.policies = NewPolicies(w)
	w.Prime(w.policies)
	return w
}

// selected is what policies say of the machines that are asked about.
func (w *world) ask(of inplace.Subject) (keep, names []string, err error) {
	w.T.Helper()
	out, err := w.policies.For(w.T.Context(), of)
	require.NoError(w.T, err)
	return out.Keep, out.Policies, out.Err
}

// change changes a policy as an API server does, and has it read.
func (w *world) change(name string, edits ...edit) {
	w.T.Helper()
	w.Change(name, edits...)
	w.Reread(name)
}

// record has the image of the Machine m noted, and returns what is noted then, and when it is looked at again.
func (w *world) record() (string, time.Duration) {
	w.T.Helper()
	r := &Recorder{Client: w, Live: w, Policies: w.policies}
	again := w.Reconcile(r, "m").RequeueAfter
	return policykindtest.Get(w.World, "m", &clusterv1.Machine{}).Annotations[refitv1.BootedImageAnnotation], again
}

// status is what shows the status of policies.
func (w *world) status() *Status {
	return &Status{Client: w, Live: w, Policies: w.policies, Recorder: w.Events, Clock: w.Clock}
}

// show has the status of the policy a shown.
func (w *world) show() *refitv1.BootImagePolicyStatus {
	w.T.Helper()
	require.Equal(w.T, refresh, w.Reconcile(w.status(), "a").RequeueAfter)
	return &w.Policy("a").Status
}
