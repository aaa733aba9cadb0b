package rotation

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// machineSets are no targets, but refer to templates too.
var machineSets = family{gvk: clusterv1.GroupVersion.WithKind("MachineSet"), machine: deployments.machine}

// notYet returns why a target that may be brought to the image is not brought to it now. Empty: nothing is in the way.
func (p *pass) notYet(ctx context.Context, t *target) (string, error) {
	if !p.settledFor(t) {
		p.settles = true
		return "it is brought to the image when all of refit can be expected to know what the policies say of it", nil
	}
	if p.keeps(t) && !p.stands(byExtension) {
		p.settles = true
		return "it is brought to the image when all of Cluster API's managers can be expected to know that they are to ask refit", nil
	}
	if reason, err := p.untimely(ctx, t); err != nil || reason != "" {
		p.waits = p.waits || reason != ""
		return reason, err
	}
	overtaken, err := p.overtaken(ctx, t)
	if err != nil || !overtaken {
		return "", err
	}
	p.again = true
	return "what the policies say of it has changed while refit looked at it, which looks again", nil
}

// untimely returns what of the target itself has to pass first. Empty: nothing.
func (p *pass) untimely(ctx context.Context, t *target) (string, error) {
	underWay, err := p.underWay(ctx, t)
	if err != nil {
		return "", err
	}
	if underWay {
		return "Cluster API is in the middle of a rollout of it, in which it must not change; it is brought to the image after that", nil
	}
	unwell, err := p.unwell(ctx, t)
	if err != nil || unwell == "" {
		return "", err
	}
	return "a control-plane machine that is not well would be deleted without asking refit, so it is brought to the image when all of them are: " +
		unwell, nil
}

// underWay reports whether Cluster API has not rolled out all that a MachineDeployment asks for: it has not acted upon the last change yet, or
// not all machines are in the MachineSet of its template. It hands a machine over from one MachineSet to another in several writes. If the
// template changes between these, it takes the machine for one too many and deletes it, or makes another one in its place. Between two
// steps of a rollout there is no telling whether the next one has begun, so all of them are waited for.
func (p *pass) underWay(ctx context.Context, t *target) (bool, error) {
	if t.gvk.Kind != deployments.gvk.Kind {
		return false, nil // a control plane has no MachineSets
	}
	if t.onDelete() {
		return false, nil // nothing is handed over: people delete machines
	}
	if observed, _, _ := unstructured.NestedInt64(t.object.Object, "status", "observedGeneration"); observed < t.object.GetGeneration() {
		return true, nil
	}
	sets, err := machineSets.list(ctx, p.Live, p.policy.Namespace, labels.SelectorFromSet(deployments.labels(t.object.GetName())))
	if err != nil || len(sets) == 0 {
		return false, err
	}
	if !moving(t, sets) {
		return false, nil
	}
	replaced, err := p.replaced(ctx, t, sets)
	return !replaced, err
}

// moving reports whether not all machines of a MachineDeployment are in the MachineSet of its template, or one comes or goes.
func moving(t *target, sets []unstructured.Unstructured) bool {
	var current int64
	for i := range sets {
		wanted, there := machinesOf(&sets[i])
		if there != wanted || wanted > 0 && (current > 0 || machineSets.reference(&sets[i]).Name != t.ref.Name) {
			return true
		}
		current += wanted
	}
	return current != replicas(t.object)
}

// replaced reports whether the machines that a rollout has still to bring to the template are replaced, all of them: where that is
// allowed, and an image turns out not to boot, nothing hands a machine over, and another image is the way out.
func (p *pass) replaced(ctx context.Context, t *target, sets []unstructured.Unstructured) (bool, error) {
	if p.policy.Spec.Rotation.Replacement != refitv1.AllowReplacement {
		return false, nil
	}
	to, err := p.template(ctx, t)
	if err != nil {
		return false, err
	}
	others := otherTemplates(t, sets)
	for _, ref := range others {
		from, err := p.read(ctx, ref)
		if err != nil || from == nil {
			return false, err
		}
		if reason, err := p.uncovered(ctx, t, from, to); err != nil || reason == "" {
			return false, err
		}
	}
	return len(others) > 0, nil
}

// otherTemplates are those from which machines are still to be brought to a target's template, if an image is all that may differ.
func otherTemplates(t *target, sets []unstructured.Unstructured) []clusterv1.ContractVersionedObjectReference {
	var others []clusterv1.ContractVersionedObjectReference
	current := 0
	for i := range sets {
		ref := machineSets.reference(&sets[i])
		switch wanted, there := machinesOf(&sets[i]); {
		case wanted == 0 && there == 0:
		case ref == t.ref:
			current++
		case ref.APIGroup != t.ref.APIGroup || ref.Kind != t.ref.Kind:
			return nil
		default:
			others = append(others, ref)
		}
	}
	if current > 1 {
		return nil // two of the same template differ in something else, which may be made in place
	}
	return others
}

// machinesOf returns how many machines a MachineSet is to have, and how many it has.
func machinesOf(set *unstructured.Unstructured) (wanted, there int64) {
	there, _, _ = unstructured.NestedInt64(set.Object, "status", "replicas")
	return replicas(set), there
}

// replicas is how many machines an object is to have.
func replicas(o *unstructured.Unstructured) int64 {
	n, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if !found {
		return 1 // Cluster API's default
	}
	return n
}
