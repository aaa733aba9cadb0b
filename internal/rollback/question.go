package rollback

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/question"
)

// Question returns the request by which Cluster API asks whether a Machine can be brought in place to what its owner wants: of a MachineDeployment's that is
// asked of its MachineSet. A *RefusedError says why there is none.
func (r *Rollback) Question(ctx context.Context, key client.ObjectKey) ([]byte, error) {
	m, err := r.read(ctx, key)
	if err != nil {
		return nil, err
	}
	ref := metav1.GetControllerOf(m.raw)
	if ref == nil || groupKindOf(ref) != clusterv1.GroupVersion.WithKind("MachineSet").GroupKind() {
		return r.questionOfOne(ctx, key)
	}
	set, deployment, err := r.rolledOut(ctx, m, ref)
	if err != nil {
		return nil, err
	}
	wanted := set.DeepCopy()
	template, _, err := unstructured.NestedMap(deployment.Object, "spec", "template")
	if err == nil {
		err = unstructured.SetNestedMap(wanted.Object, template, "spec", "template")
	}
	if err != nil {
		return nil, refuse("the template of %s can't be read: %v", nameOf(deployment), err)
	}
	current, err := r.withTemplates(ctx, set)
	if err != nil {
		return nil, err
	}
	desired, err := r.withTemplates(ctx, wanted)
	if err != nil {
		return nil, err
	}
	return question.CanUpdateMachineSet(current, desired)
}

// questionOfOne is what is asked about a Machine of a control plane.
func (r *Rollback) questionOfOne(ctx context.Context, key client.ObjectKey) ([]byte, error) {
	plan, err := r.Plan(ctx, key)
	if err != nil {
		return nil, err
	}
	current, err := question.WithRefs(ctx, r.Live, plan.machine.raw, &plan.machine.typed.Spec)
	if err != nil {
		return nil, err
	}
	desired, err := current.After(plan.Change)
	if err != nil {
		return nil, err
	}
	return question.CanUpdateMachine(current, desired)
}

// withTemplates returns a MachineSet with the templates that it points to.
func (r *Rollback) withTemplates(ctx context.Context, set *unstructured.Unstructured) (question.Objects, error) {
	spec, _, err := unstructured.NestedMap(set.Object, "spec", "template", "spec")
	var typed clusterv1.MachineSpec
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &typed)
	}
	if err != nil {
		return nil, refuse("the template of %s can't be read: %v", nameOf(set), err)
	}
	objects := question.Objects{fieldset.Machine: set}
	for of, to := range map[fieldset.Object]clusterv1.ContractVersionedObjectReference{
		fieldset.InfrastructureMachine: typed.InfrastructureRef, fieldset.BootstrapConfig: typed.Bootstrap.ConfigRef,
	} {
		if !to.IsDefined() {
			continue
		}
		if objects[of], err = external.GetObjectFromContractVersionedRef(ctx, r.Live, to, set.GetNamespace()); err != nil {
			return nil, fmt.Errorf("read %s %s, which %s points to: %w", to.Kind, to.Name, nameOf(set), err)
		}
	}
	return objects, nil
}
