package rollback

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/rollout"
)

// Difference returns what differs between a Machine and what its owner wants now, as Cluster API compares them: for a MachineDeployment the templates
// that it and the Machine's MachineSet point to, for a KubeadmControlPlane the Machine's objects and what a dry run makes of them. It is empty
// where the owner wants another Machine without another spec, as rolloutAfter does. A *RefusedError says why it can't be told.
func (r *Rollback) Difference(ctx context.Context, key client.ObjectKey) (fieldset.Change, error) {
	m, err := r.read(ctx, key)
	if err != nil {
		return nil, err
	}
	if ref := metav1.GetControllerOf(m.raw); ref != nil && groupKindOf(ref) == clusterv1.GroupVersion.WithKind("MachineSet").GroupKind() {
		return r.differenceOfSet(ctx, m, ref)
	}
	plan, err := r.Plan(ctx, key)
	if err != nil {
		return nil, err
	}
	return plan.Change, nil
}

func groupKindOf(ref *metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
}

// differenceOfSet compares what a MachineSet makes with what its MachineDeployment wants. Nothing is asked of a provider's webhooks: Cluster API does
// not ask them either before it decides.
func (r *Rollback) differenceOfSet(ctx context.Context, m *machine, ref *metav1.OwnerReference) (fieldset.Change, error) {
	set, deployment, err := r.rolledOut(ctx, m, ref)
	if err != nil {
		return nil, err
	}
	now, err := r.madeBy(ctx, set)
	if err != nil {
		return nil, err
	}
	wanted, err := r.madeBy(ctx, deployment)
	if err != nil {
		return nil, err
	}
	change, err := rollout.Compare(ctx, now.made(), wanted.made())
	switch {
	case errors.Is(err, rollout.ErrBootstrap):
		return nil, refuse("%s wants a bootstrap config and MachineSet %s has none, or the other way round", wanted.owner, set.GetName())
	case err != nil:
		return nil, refuse("what MachineSet %s makes can't be compared with what %s wants: %v", set.GetName(), wanted.owner, err)
	}
	return change, nil
}

// made is what is wanted, as it is compared.
func (w *want) made() rollout.Made {
	out := rollout.Made{Machine: rollout.MachineSpec(w.machine), Infrastructure: specOf(w.infrastructure)}
	if w.bootstrap != nil {
		out.Bootstrap = new(specOf(w.bootstrap))
	}
	return out
}

// rolledOut returns the MachineSet of a Machine, and its MachineDeployment. A MachineSet that has none is refused.
func (r *Rollback) rolledOut(ctx context.Context, m *machine, ref *metav1.OwnerReference) (set, deployment *unstructured.Unstructured, err error) {
	set, deployment, err = r.setOf(ctx, m, ref)
	if err == nil && deployment == nil {
		err = refuse("MachineSet %s belongs to no MachineDeployment, and changes none of the Machines that it has made", set.GetName())
	}
	return set, deployment, err
}

// setOf returns the MachineSet of a Machine, and its MachineDeployment if it has one.
func (r *Rollback) setOf(ctx context.Context, m *machine, ref *metav1.OwnerReference) (set, deployment *unstructured.Unstructured, err error) {
	gv := clusterv1.GroupVersion
	if set, err = r.ownerOf(ctx, m.raw.GetNamespace(), ref, gv.WithKind("MachineSet")); err != nil {
		return nil, nil, err
	}
	above := metav1.GetControllerOf(set)
	if above == nil {
		return set, nil, nil
	}
	if groupKindOf(above) != gv.WithKind("MachineDeployment").GroupKind() {
		return nil, nil, refuse("MachineSet %s belongs to %s %s, and refit can't tell what that wants", set.GetName(), above.Kind, above.Name)
	}
	deployment, err = r.ownerOf(ctx, m.raw.GetNamespace(), above, gv.WithKind("MachineDeployment"))
	return set, deployment, err
}
