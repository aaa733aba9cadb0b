package rotation

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// machineSets are no targets, but refer to templates too.
var machineSets = family{gvk: clusterv1.GroupVersion.WithKind("MachineSet"), machine: deployments.machine}

// notYet says why a target that may be brought to the image is not brought to it now. Empty: nothing is in the way.
func (p *pass) notYet(ctx context.Context, t *target) (string, error) {
	if !p.settled {
		return "it is brought to the image when all of refit can be expected to know the policy", nil
	}
	underWay, err := p.underWay(ctx, t)
	if err != nil || !underWay {
		return "", err
	}
	p.waits = true
	return "Cluster API is in the middle of a rollout of it, in which it must not change; it is brought to the image after that", nil
}

// underWay says whether Cluster API has not rolled out all that a MachineDeployment asks for: it has not acted upon the last change yet, or
// not all machines are in the MachineSet of its template. It hands a machine over from one MachineSet to another in several writes. If the
// template changes between these, it takes the machine for one too many and deletes it, or makes another one in its place. Between two
// steps of a rollout there is no telling whether the next one has begun, so all of them are waited for.
func (p *pass) underWay(ctx context.Context, t *target) (bool, error) {
	if t.gvk.Kind != deployments.gvk.Kind {
		return false, nil // a control plane has no MachineSets
	}
	if strategy, _, _ := unstructured.NestedString(t.object.Object, "spec", "rollout", "strategy", "type"); strategy == string(clusterv1.OnDeleteMachineDeploymentStrategyType) {
		return false, nil // nothing is handed over: people delete machines
	}
	if observed, _, _ := unstructured.NestedInt64(t.object.Object, "status", "observedGeneration"); observed < t.object.GetGeneration() {
		return true, nil
	}
	sets, err := machineSets.list(ctx, p.Live, p.policy.Namespace, labels.SelectorFromSet(deployments.labels(t.object.GetName())))
	if err != nil || len(sets) == 0 {
		return false, err
	}
	template := infrastructureOf(t.object)
	var current int64
	for i := range sets {
		wanted := replicas(&sets[i])
		there, _, _ := unstructured.NestedInt64(sets[i].Object, "status", "replicas")
		if there != wanted || wanted > 0 && (current > 0 || infrastructureOf(&sets[i]) != template) {
			return true, nil
		}
		current += wanted
	}
	return current != replicas(t.object), nil
}

// infrastructureOf is the name of the template that a MachineDeployment or a MachineSet makes the infrastructure of its machines from.
func infrastructureOf(o *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(o.Object, append(slices.Clone(deployments.machine), "spec", "infrastructureRef", "name")...)
	return name
}

// replicas is how many machines an object is to have.
func replicas(o *unstructured.Unstructured) int64 {
	n, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if !found {
		return 1 // Cluster API's default
	}
	return n
}
