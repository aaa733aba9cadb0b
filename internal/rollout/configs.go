package rollout

import (
	"context"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg/desiredstate"

	"github.com/capi-refit/refit/internal/fieldset"
)

// ConfigOf returns the KubeadmConfig that a KubeadmControlPlane makes for a machine of the name that joins, as it updates each machine to one, also the
// one that the cluster was initialized with. A field that this version does not know is an error: nobody could tell what becomes of it.
func ConfigOf(owner *unstructured.Unstructured, cluster, name string) (fieldset.Spec, error) {
	return config(owner, cluster, name, true)
}

// config returns the KubeadmConfig for a machine that joins, or for the one that the cluster is initialized with.
func config(owner *unstructured.Unstructured, cluster, name string, joins bool) (fieldset.Spec, error) {
	out := fieldset.Spec{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "KubeadmConfig"}
	kcp, err := controlPlaneOf(owner, true)
	if err != nil {
		return out, err
	}
	of := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: owner.GetNamespace(), Name: cluster}}
	made, err := desiredstate.ComputeDesiredKubeadmConfig(kcp, of, joins, name, nil)
	if err != nil {
		return out, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&bootstrapv1.KubeadmConfig{Spec: made.Spec})
	out.Value = fields["spec"]
	return out, err
}

func controlPlaneOf(owner *unstructured.Unstructured, strict bool) (*controlplanev1.KubeadmControlPlane, error) {
	var kcp controlplanev1.KubeadmControlPlane
	object := map[string]any{"spec": owner.Object["spec"]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, &kcp, strict); err != nil {
		return nil, fmt.Errorf("it has fields that this version of refit does not know, or can't read: %w", err)
	}
	return &kcp, nil
}

// CompareConfigs returns what differs between two KubeadmConfigs of control-plane machines that KubeadmControlPlane rolls machines out for. What it writes
// to the cluster itself, or never looks at in a machine that has joined, is no difference.
func CompareConfigs(ctx context.Context, now, wanted fieldset.Spec) (fieldset.ObjectChange, bool, error) {
	now.Value, wanted.Value = Compared(now.Value), Compared(wanted.Value)
	return fieldset.Compare(ctx, fieldset.BootstrapConfig, now, wanted)
}

// notCompared are the fields of a KubeadmConfig that are no reason for a rollout of control-plane machines.
var notCompared = [][]string{
	{"clusterConfiguration", "controlPlaneEndpoint"},
	{"clusterConfiguration", "dns"},
	{"initConfiguration", "timeouts", "controlPlaneComponentHealthCheckSeconds"},
	{"joinConfiguration", "timeouts", "controlPlaneComponentHealthCheckSeconds"},
	{"joinConfiguration", "discovery"},
}

// presets are what fields of a KubeadmConfig mean where they are not set.
var presets = []struct {
	path  []string
	value string
}{
	{[]string{"format"}, string(bootstrapv1.CloudConfig)},
	{[]string{"initConfiguration", "nodeRegistration", "imagePullPolicy"}, "IfNotPresent"},
	{[]string{"joinConfiguration", "nodeRegistration", "imagePullPolicy"}, "IfNotPresent"},
}

// Compared returns a decoded KubeadmConfigSpec as KubeadmControlPlane compares it. Its argument stays as it is.
func Compared(spec any) map[string]any {
	m, _ := spec.(map[string]any)
	m = said(runtime.DeepCopyJSON(m), nil)
	for _, path := range notCompared {
		unstructured.RemoveNestedField(m, path...)
	}
	for _, p := range presets {
		if value, _, _ := unstructured.NestedString(m, p.path...); value == p.value {
			unstructured.RemoveNestedField(m, p.path...)
		}
	}
	return said(m, nil)
}

// said leaves out mappings and lists that are empty, as KubeadmControlPlane does. An empty list of taints is one: kubeadm sets none then.
func said(m map[string]any, path []string) map[string]any {
	out := maps.Clone(m)
	for name, value := range m {
		switch v := value.(type) {
		case map[string]any:
			rest := said(v, append(path, name))
			out[name] = rest
			if len(rest) == 0 && (len(path) == 0 || name != "controlPlane") { // a control plane that joins says so by an empty mapping
				delete(out, name)
			}
		case []any:
			if len(v) == 0 && name != "taints" {
				delete(out, name)
			}
		case nil:
			delete(out, name)
		}
	}
	return out
}
