package rollback

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"

	"github.com/capi-refit/refit/internal/rollout"
)

// The field managers by which Cluster API v1.12 and later applies the specs of what a Machine is made of.
const (
	machineSetManager   = "capi-machineset"
	controlPlaneManager = "capi-kubeadmcontrolplane"
)

// want is what the owner of a Machine wants it to be.
type want struct {
	// owner is whose template that is, as people read it.
	owner string
	// manager is the field manager by which the owner writes.
	manager string
	// machine is the wanted spec of the Machine.
	machine any
	// infrastructure and bootstrap have a kind, a spec, and the annotations that go with it. There may be no bootstrap config.
	infrastructure, bootstrap *unstructured.Unstructured
}

// wanted reads what the owner of a Machine wants now.
func (r *Rollback) wanted(ctx context.Context, m *machine) (*want, error) {
	ref := metav1.GetControllerOf(m.raw)
	if ref == nil {
		return nil, refuse("Machine %s has no owner that has a template", m.name())
	}
	switch groupKindOf(ref) {
	case clusterv1.GroupVersion.WithKind("MachineSet").GroupKind():
		return r.wantedBySet(ctx, m, ref)
	case controlplanev1.GroupVersion.WithKind("KubeadmControlPlane").GroupKind():
		return r.wantedByControlPlane(ctx, m, ref)
	default:
		return nil, refuse("Machine %s belongs to %s %s, and refit can tell only what a MachineDeployment, a MachineSet or a KubeadmControlPlane wants",
			m.name(), ref.Kind, ref.Name)
	}
}

// wantedBySet returns what a MachineSet wants, or its MachineDeployment if it has one: that may point to another template by now.
func (r *Rollback) wantedBySet(ctx context.Context, m *machine, ref *metav1.OwnerReference) (*want, error) {
	owner, deployment, err := r.setOf(ctx, m, ref)
	if err != nil {
		return nil, err
	}
	if deployment != nil {
		owner = deployment
	}
	return r.madeBy(ctx, owner)
}

// madeBy returns what a MachineSet or a MachineDeployment makes of its templates.
func (r *Rollback) madeBy(ctx context.Context, owner *unstructured.Unstructured) (*want, error) {
	spec, _, err := unstructured.NestedMap(owner.Object, "spec", "template", "spec")
	if err != nil {
		return nil, refuse("the template of %s can't be read: %v", nameOf(owner), err)
	}
	var typed clusterv1.MachineSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &typed); err != nil {
		return nil, refuse("the template of %s can't be read: %v", nameOf(owner), err)
	}
	w := &want{owner: nameOf(owner), manager: machineSetManager, machine: spec}
	if w.infrastructure, err = r.clone(ctx, owner, typed.InfrastructureRef); err != nil {
		return nil, err
	}
	if typed.Bootstrap.ConfigRef.IsDefined() {
		w.bootstrap, err = r.clone(ctx, owner, typed.Bootstrap.ConfigRef)
	}
	return w, err
}

// wantedByControlPlane returns what a KubeadmControlPlane wants. It updates each machine to a configuration for joining, also the
// one that the cluster was initialized with.
func (r *Rollback) wantedByControlPlane(ctx context.Context, m *machine, ref *metav1.OwnerReference) (*want, error) {
	owner, err := r.ownerOf(ctx, m.raw.GetNamespace(), ref, controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"))
	if err != nil {
		return nil, err
	}
	config, err := rollout.ConfigOf(owner, m.typed.Spec.ClusterName, m.typed.Spec.Bootstrap.ConfigRef.Name)
	if err != nil {
		return nil, refuse("the KubeadmConfig that %s wants can't be told: %v", nameOf(owner), err)
	}
	var kcp controlplanev1.KubeadmControlPlane
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"spec": owner.Object["spec"]}, &kcp); err != nil {
		return nil, refuse("%s can't be read: %v", nameOf(owner), err)
	}
	spec := runtime.DeepCopyJSON(m.spec())
	spec["version"] = kcp.Spec.Version // all else of it is written while machines are there, or never
	w := &want{owner: nameOf(owner), manager: controlPlaneManager, machine: spec}
	w.bootstrap = objectOf(bootstrapv1.GroupVersion.WithKind("KubeadmConfig"), config.Value, nil)
	w.infrastructure, err = r.clone(ctx, owner, kcp.Spec.MachineTemplate.Spec.InfrastructureRef)
	return w, err
}

// ownerOf reads the owner that a reference names.
func (r *Rollback) ownerOf(ctx context.Context, namespace string, ref *metav1.OwnerReference, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	owner := &unstructured.Unstructured{}
	owner.SetGroupVersionKind(kind)
	key := client.ObjectKey{Namespace: namespace, Name: ref.Name}
	switch err := r.Live.Get(ctx, key, owner); {
	case apierrors.IsNotFound(err), err == nil && owner.GetUID() != ref.UID:
		return nil, refuse("%s %s, which the Machine belongs to, is gone", ref.Kind, key)
	case err != nil:
		return nil, fmt.Errorf("read %s %s: %w", ref.Kind, key, err)
	case !owner.GetDeletionTimestamp().IsZero():
		return nil, refuse("%s is being deleted", nameOf(owner))
	}
	return owner, nil
}

// clone returns what an owner makes of a template, as Cluster API does.
func (r *Rollback) clone(ctx context.Context, owner *unstructured.Unstructured, ref clusterv1.ContractVersionedObjectReference) (*unstructured.Unstructured, error) {
	template, err := external.GetObjectFromContractVersionedRef(ctx, r.Live, ref, owner.GetNamespace())
	switch {
	case apierrors.IsNotFound(err):
		return nil, refuse("%s %s, which %s points to, is not there", ref.Kind, ref.Name, nameOf(owner))
	case err != nil:
		return nil, fmt.Errorf("read %s %s, which %s points to: %w", ref.Kind, ref.Name, nameOf(owner), err)
	}
	made, err := external.GenerateTemplate(&external.GenerateTemplateInput{
		Template: template, Namespace: owner.GetNamespace(), Name: template.GetName(),
		TemplateRef: &corev1.ObjectReference{APIVersion: template.GetAPIVersion(), Kind: template.GetKind(), Name: template.GetName()},
	})
	if err != nil {
		return nil, refuse("%s %s, which %s points to, can't be read: %v", ref.Kind, ref.Name, nameOf(owner), err)
	}
	return objectOf(made.GroupVersionKind(), made.Object["spec"], map[string]string{
		clusterv1.TemplateClonedFromNameAnnotation:      made.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation],
		clusterv1.TemplateClonedFromGroupKindAnnotation: made.GetAnnotations()[clusterv1.TemplateClonedFromGroupKindAnnotation],
	}), nil
}

// objectOf returns what an owner applies. The annotation by which Cluster API has the machine updated is a part of that, so that it
// does not go.
func objectOf(kind schema.GroupVersionKind, spec any, annotations map[string]string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(kind)
	if spec != nil {
		o.Object["spec"] = spec
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[clusterv1.UpdateInProgressAnnotation] = ""
	o.SetAnnotations(annotations)
	return o
}

func nameOf(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}
