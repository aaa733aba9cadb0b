package rotation

import (
	"context"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/bootimage"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/image"
)

const (
	namespace      = policykindtest.Namespace
	infrastructure = "infrastructure.cluster.x-k8s.io"

	oldImage = "https://images.example/os-1.qcow2"
	newImage = "https://images.example/os-2.qcow2"
	sum      = "aa00000000000000000000000000000000000000000000000000000000000001"
)

type object = map[string]any

// made is an object as an API server has it.
func made(gvk schema.GroupVersionKind, name string, spec object) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: object{"spec": spec}}
	o.SetGroupVersionKind(gvk)
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID(types.UID("uid-" + name))
	return o
}

func infra(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: infrastructure, Version: "v1beta1", Kind: kind}
}

var clusterOwner = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c1", UID: "uid-c1"}}

// template is a Metal3MachineTemplate with an image.
func template(name, image string) *unstructured.Unstructured {
	o := made(infra("Metal3MachineTemplate"), name, object{"nodeReuse": true, "template": object{"spec": object{
		"image": object{"url": image, "checksum": "old", "format": "qcow2"}, "automatedCleaningMode": "metadata",
	}}})
	o.SetLabels(map[string]string{"team": "os", "app.kubernetes.io/instance": "fleet"})
	o.SetAnnotations(map[string]string{"note": "kept", "kubectl.kubernetes.io/last-applied-configuration": "{}"})
	o.SetOwnerReferences(clusterOwner)
	return o
}

// deployment is a MachineDeployment of which one machine may be unavailable.
func deployment(name, kind, template string) *unstructured.Unstructured {
	o := made(deployments.gvk, name, object{
		"clusterName": "c1", "replicas": int64(2),
		"rollout": object{"strategy": object{"type": "RollingUpdate", "rollingUpdate": object{"maxUnavailable": int64(1)}}},
		"template": object{"metadata": object{"labels": object{"pool": name}}, "spec": object{
			"version": "v1.36.1", "infrastructureRef": object{"apiGroup": infrastructure, "kind": kind, "name": template},
		}},
	})
	o.SetLabels(map[string]string{"golden": "yes"})
	return o
}

// controlPlane is a KubeadmControlPlane of which all machines are well.
func controlPlane(template string) *unstructured.Unstructured {
	o := made(controlPlanes.gvk, "cp", object{
		"version": "v1.36.1", "replicas": int64(3),
		"rollout": object{"strategy": object{"type": "RollingUpdate", "rollingUpdate": object{"maxSurge": int64(0)}}},
		"machineTemplate": object{"spec": object{
			"infrastructureRef": object{"apiGroup": infrastructure, "kind": "Metal3MachineTemplate", "name": template},
		}},
	})
	o.SetLabels(map[string]string{"golden": "yes"})
	o.SetOwnerReferences(clusterOwner)
	o.Object["status"] = object{
		"replicas": int64(3), "readyReplicas": int64(3), "upToDateReplicas": int64(3),
		"conditions": []any{object{"type": "ControlPlaneComponentsHealthy", "status": "True"}, object{"type": "EtcdClusterHealthy", "status": "True"}},
	}
	return o
}

func crd(plural, kind string) *apiextensionsv1.CustomResourceDefinition {
	return managementtest.CRD(plural, infra(kind))
}

func stream(image string) string {
	return `{"architectures":{"x86_64":{"images":{"metal":{"release":"2","image":"` + image + `","sha256":"` + sum + `"}}}}}`
}

func images(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "golden"}, Data: data}
}

var kind policykindtest.Kind[*refitv1.BootImagePolicy, refitv1.BootImagePolicySpec]

// policy keeps the Metal3MachineTemplates of all that is labelled golden at the golden image.
func policy(name string) *refitv1.BootImagePolicy {
	labelled := &metav1.LabelSelector{MatchLabels: map[string]string{"golden": "yes"}}
	p := kind.Policy(name)
	p.Spec.Selection.Mode = refitv1.AllBootImages
	p.Spec.Rotation = &refitv1.BootImageRotation{
		ConfigMap: "golden", Platform: "metal", Architecture: "amd64",
		Template: refitv1.BootImageTemplate{Group: infrastructure, Kind: "Metal3MachineTemplate", Fields: []refitv1.BootImageField{
			{Path: "image.url"}, {Path: "image.checksum", Value: refitv1.SHA256Value},
		}},
		Targets:     refitv1.BootImageTargets{MachineDeployments: labelled, ControlPlanes: labelled},
		Replacement: refitv1.ForbidReplacement,
	}
	return p
}

// world is a management cluster, a fake of one, with a policy, a Cluster, a template and what refers to it.
type world struct {
	*policykindtest.Policies[*refitv1.BootImagePolicy, refitv1.BootImagePolicySpec]
	controller *Controller
	// creates, patches and deletes are writes of templates and of targets that an API server would have done.
	creates, patches, deletes int
	// onCreate and onPatch are asked before such a write.
	onCreate, onPatch func(obj client.Object, dryRun bool) error
}

func basis() []client.Object {
	return []client.Object{
		crd("metal3machinetemplates", "Metal3MachineTemplate"), crd("awsmachinetemplates", "AWSMachineTemplate"),
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c1", UID: "uid-c1", Labels: map[string]string{"env": "prod"}}},
		template("base", oldImage), images(map[string]string{"stream": stream(newImage)}), policy("p"),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"refit": "yes"}}}, extension(),
	}
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	w := &world{}
	w.Policies = kind.World(t, policykindtest.Kinds(addKinds), policykindtest.With(objects...), policykindtest.Intercept(w.intercept()))
	w.controller = &Controller{
		Client: w.Client, Live: w.Client, Updaters: inplace.UpdatersFunc(w.updaters), Recorder: w.Events, Clock: w.Clock, rollouts: newRollouts(),
	}
	return w
}

// addKinds adds those that are read without their types.
func addKinds(scheme *runtime.Scheme) error {
	for _, kind := range []string{"Metal3Machine", "AWSMachine"} { // so that an empty list of them is no error
		scheme.AddKnownTypeWithName(infra(kind), &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(infra(kind+"List"), &unstructured.UnstructuredList{})
		scheme.AddKnownTypeWithName(infra(kind+"Template"), &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(infra(kind+"TemplateList"), &unstructured.UnstructuredList{})
	}
	scheme.AddKnownTypeWithName(controlPlanes.gvk, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(controlPlanes.gvk.GroupVersion().WithKind("KubeadmControlPlaneList"), &unstructured.UnstructuredList{})
	scheme.AddKnownTypeWithName(extensionConfigs, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(extensionConfigs.GroupVersion().WithKind("ExtensionConfigList"), &unstructured.UnstructuredList{})
	return nil
}

func (w *world) intercept() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			dryRun := len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0
			if w.onCreate != nil {
				if err := w.onCreate(obj, dryRun); err != nil {
					return err
				}
			}
			if !dryRun {
				w.creates++
				obj.SetCreationTimestamp(metav1.NewTime(w.Clock.Now()))
			}
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if w.onPatch != nil {
				if err := w.onPatch(obj, false); err != nil {
					return err
				}
			}
			w.patches++
			return c.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			w.deletes++
			return c.Delete(ctx, obj, opts...)
		},
	}
}

// updaters are those for images, by the policies as they are: what really answers the hooks.
func (w *world) updaters(ctx context.Context, s inplace.Subject) (*updaters.Registry, error) {
	policies := bootimage.NewPolicies(w.Client)
	if err := policies.Prime(ctx); err != nil {
		return nil, err
	}
	selected, err := policies.For(ctx, s)
	if err != nil {
		return nil, err
	}
	return updaters.NewRegistry(image.New(selected))
}

// reconcile looks once.
func (w *world) reconcile() (ctrl.Result, error) {
	return w.controller.Reconcile(w.T.Context(), policykindtest.Request("p"))
}

// settle looks, waits until the policy may be acted upon, and looks again.
func (w *world) settle() {
	w.T.Helper()
	for range 2 {
		_, err := w.reconcile()
		require.NoError(w.T, err)
		w.Clock.Step(settling)
	}
}

// requireSettling requires that the target waits until everybody can be expected to know what the message says, and is rotated then.
func (w *world) requireSettling(says string) {
	w.T.Helper()
	result, err := w.reconcile()
	require.NoError(w.T, err)
	require.Equal(w.T, refitv1.TargetPending, w.target().State, w.target().Message)
	require.Contains(w.T, w.target().Message, says)
	require.Equal(w.T, settling, result.RequeueAfter)
	require.Equal(w.T, "base", w.refersTo(deployments, "workers"))
	w.Clock.Step(settling)
	_, err = w.reconcile()
	require.NoError(w.T, err)
	require.Equal(w.T, refitv1.TargetRotated, w.target().State)
}

func (w *world) policy() *refitv1.BootImagePolicy { return w.Policy("p") }

// target is what the status of the policy says of the only target.
func (w *world) target() refitv1.BootImageTarget {
	w.T.Helper()
	st := w.policy().Status.Rotation
	require.NotNil(w.T, st)
	require.Len(w.T, st.Targets, 1)
	return st.Targets[0]
}

func (w *world) condition() metav1.Condition {
	w.T.Helper()
	c := meta.FindStatusCondition(w.policy().Status.Conditions, refitv1.RotationUpToDateCondition)
	require.NotNil(w.T, c)
	return *c
}

func (w *world) object(gvk schema.GroupVersionKind, name string) *unstructured.Unstructured {
	w.T.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	return policykindtest.Get(w.World, name, o)
}

// refersTo is the name of the template to which a target refers.
func (w *world) refersTo(f family, name string) string {
	w.T.Helper()
	return f.reference(w.object(f.gvk, name)).Name
}

// setBack has the MachineDeployment workers refer to another template, as somebody does who has it so in a repository.
func (w *world) setBack(template string, more ...func(*unstructured.Unstructured)) {
	w.T.Helper()
	o := w.object(deployments.gvk, "workers")
	field(template, "spec", "template", "spec", "infrastructureRef", "name")(o)
	for _, m := range more {
		m(o)
	}
	require.NoError(w.T, w.Update(w.T.Context(), o))
}

// templates are the names of all Metal3MachineTemplates.
func (w *world) templates() []string {
	w.T.Helper()
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(infra("Metal3MachineTemplateList"))
	require.NoError(w.T, w.List(w.T.Context(), &list, client.InNamespace(namespace)))
	var out []string
	for _, o := range list.Items {
		out = append(out, o.GetName())
	}
	return out
}

// told are the events since the last call.
func (w *world) told() []string {
	var out []string
	for {
		select {
		case e := <-w.Events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

func with(o *unstructured.Unstructured, edits ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	for _, e := range edits {
		e(o)
	}
	return o
}

func annotated(key, value string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		all := maps.Clone(o.GetAnnotations())
		if all == nil {
			all = map[string]string{}
		}
		all[key] = value
		o.SetAnnotations(all)
	}
}

func labelled(key, value string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		all := maps.Clone(o.GetLabels())
		if all == nil {
			all = map[string]string{}
		}
		all[key] = value
		o.SetLabels(all)
	}
}

func controlledBy(apiVersion, kind string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		yes := true
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "boss", UID: "uid-boss", Controller: &yes}})
	}
}

func field(value any, path ...string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
			panic(err)
		}
	}
}

// pause pauses the Cluster, or has it go on.
func (w *world) pause(paused bool) {
	w.T.Helper()
	policykindtest.Change(w.World, "c1", &clusterv1.Cluster{}, func(c *clusterv1.Cluster) { c.Spec.Paused = &paused })
}
