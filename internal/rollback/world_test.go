package rollback

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
)

var (
	machineKey   = types.NamespacedName{Namespace: "lab", Name: "m1"}
	configKind   = schema.GroupVersionKind{Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmConfig"}
	infraKind    = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1", Kind: "AcmeMachine"}
	controlPlane = schema.GroupVersionKind{Group: "controlplane.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmControlPlane"}
)

type fields = map[string]any

// world is a management cluster with a Machine that was updated in place to a bad change.
type world struct {
	client.WithWatch
	t *testing.T
}

func newWorld(t *testing.T) *world {
	scheme := runtime.NewScheme() // without Cluster API's types, which have no fields that this version does not know
	require.NoError(t, errors.Join(apiextensionsv1.AddToScheme(scheme), refitv1.AddToScheme(scheme)))
	w := &world{managementtest.NewForApply(scheme), t}
	for plural, kind := range map[string]schema.GroupVersionKind{
		"kubeadmconfigs": configKind, "kubeadmconfigtemplates": templateOf(configKind), "acmemachines": infraKind, "acmemachinetemplates": templateOf(infraKind),
		"othermachinetemplates": {Group: infraKind.Group, Version: "v1", Kind: "OtherMachineTemplate"},
	} {
		w.create(managementtest.CRD(plural, kind))
	}
	return w
}

func templateOf(kind schema.GroupVersionKind) schema.GroupVersionKind {
	kind.Kind += "Template"
	return kind
}

func (w *world) rollback() *Rollback { return &Rollback{Writer: w, Live: w} }

func (w *world) create(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.Create(w.t.Context(), o))
}

// object creates an object with a spec and, maybe, an owner.
func (w *world) object(kind schema.GroupVersionKind, name string, spec fields, owner *unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields{"spec": spec}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(machineKey.Namespace)
	o.SetName(name)
	o.SetUID(types.UID("uid-of-" + name))
	if owner != nil {
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
	}
	w.create(o)
	return o
}

func (w *world) template(kind schema.GroupVersionKind, name string, spec fields) {
	w.object(templateOf(kind), name, fields{"template": fields{"metadata": fields{"labels": fields{"a": "b"}}, "spec": spec}}, nil)
}

// applied has Cluster API apply an object as it does when it has a machine updated in place, and others write to it afterwards.
func (w *world) applied(manager string, kind schema.GroupVersionKind, spec, by fields) {
	w.t.Helper()
	o := objectOf(kind, spec, nil)
	o.SetNamespace(machineKey.Namespace)
	o.SetName(machineKey.Name)
	require.NoError(w.t, w.Apply(w.t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(manager), client.ForceOwnership))
	if by == nil {
		return
	}
	changed := w.get(kind, machineKey.Name)
	before := changed.DeepCopy()
	for name, value := range by {
		require.NoError(w.t, unstructured.SetNestedField(changed.Object, value, "spec", name))
	}
	require.NoError(w.t, w.Patch(w.t.Context(), changed, client.MergeFrom(before), client.FieldOwner("manager")))
}

func (w *world) get(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	w.t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	require.NoError(w.t, w.Get(w.t.Context(), types.NamespacedName{Namespace: machineKey.Namespace, Name: name}, o))
	return o
}

func (w *world) spec(kind schema.GroupVersionKind) any {
	return w.get(kind, machineKey.Name).Object["spec"]
}

func (w *world) edit(kind schema.GroupVersionKind, name string, value any, path ...string) {
	w.t.Helper()
	o := w.get(kind, name)
	require.NoError(w.t, unstructured.SetNestedField(o.Object, value, path...))
	require.NoError(w.t, w.Update(w.t.Context(), o))
}

func kindOfCluster(kind string) schema.GroupVersionKind { return clusterv1.GroupVersion.WithKind(kind) }

func ref(kind schema.GroupVersionKind, name string) fields {
	return fields{"apiGroup": kind.Group, "kind": kind.Kind, "name": name}
}

func file(content string) any { return fields{"path": "/etc/a", "content": content} }

// machineSpec is that of a Machine, or of a template of such.
func machineSpec(version string, config, infra schema.GroupVersionKind, name string) fields {
	return fields{
		"clusterName": "c1", "version": version, "bootstrap": fields{"configRef": ref(config, name)}, "infrastructureRef": ref(infra, name),
	}
}

// ofWorkers is the spec of a MachineDeployment or of a MachineSet.
func ofWorkers(machine fields) fields {
	labels := fields{"app": "workers"}
	return fields{"clusterName": "c1", "selector": fields{"matchLabels": labels}, "template": fields{"metadata": fields{"labels": labels}, "spec": machine}}
}

// worker is a Machine of a MachineDeployment that points to the good templates again.
func worker(t *testing.T) *world { return newWorld(t).withWorker() }

func (w *world) withWorker() *world {
	for name, content := range map[string]string{"good": "one\n", "bad": "two\n"} {
		w.template(configKind, name, fields{"files": []any{file(content)}, "joinConfiguration": fields{"nodeRegistration": fields{"name": "n"}}})
		w.template(infraKind, name, fields{"size": "small", name: true})
	}
	template := machineSpec("v1.36.0", templateOf(configKind), templateOf(infraKind), "good")
	md := w.object(kindOfCluster("MachineDeployment"), "workers", ofWorkers(template), nil)
	bad := machineSpec("v1.36.1", templateOf(configKind), templateOf(infraKind), "bad")
	ms := w.object(kindOfCluster("MachineSet"), "workers-bad", ofWorkers(bad), md)
	m := machineSpec("v1.36.1", configKind, infraKind, machineKey.Name)
	m["providerID"], m["deletion"] = "acme://1", fields{"nodeDeletionTimeoutSeconds": int64(10)}
	w.object(kindOfCluster("Machine"), machineKey.Name, m, ms)
	w.applied(machineSetManager, infraKind, fields{"size": "small", "bad": true}, fields{"providerID": "acme://1"})
	w.applied(machineSetManager, configKind, fields{
		"files": []any{file("two\n")}, "users": []any{fields{"name": "bad"}}, "joinConfiguration": fields{"nodeRegistration": fields{"name": "n"}},
	}, fields{"clusterConfiguration": fields{"controlPlaneEndpoint": "10.0.0.1:6443"}})
	return w
}

// first is the control-plane machine that the cluster was initialized with, of a KubeadmControlPlane that is as it was before.
func first(t *testing.T) *world { return newWorld(t).withControlPlane() }

func (w *world) withControlPlane() *world {
	w.template(infraKind, "good", fields{"size": "small"})
	config := fields{
		"files":                []any{file("one\n")},
		"initConfiguration":    fields{"nodeRegistration": fields{"name": "init"}},
		"joinConfiguration":    fields{"nodeRegistration": fields{"name": "join"}},
		"clusterConfiguration": fields{"certificatesDir": "/pki"},
	}
	kcp := w.object(controlPlane, "cp", fields{
		"version": "v1.35.0", "kubeadmConfigSpec": config, "machineTemplate": fields{"spec": fields{"infrastructureRef": ref(templateOf(infraKind), "good")}},
	}, nil)
	m := machineSpec("v1.35.0", configKind, infraKind, machineKey.Name)
	m["failureDomain"] = "a"
	w.object(kindOfCluster("Machine"), machineKey.Name, m, kcp)
	w.applied(controlPlaneManager, infraKind, fields{"size": "small"}, fields{"providerID": "acme://1"})
	w.applied(controlPlaneManager, configKind, fields{
		"files":                []any{file("two\n")},
		"joinConfiguration":    fields{"nodeRegistration": fields{"name": "join"}, "controlPlane": fields{}},
		"clusterConfiguration": fields{"certificatesDir": "/pki", "featureGates": fields{"ControlPlaneKubeletLocalMode": true}},
	}, nil)
	return w
}
