package question

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"

	"github.com/capi-refit/refit/internal/fieldset"
)

// WithRefs returns a Machine with what its spec refers to, as that is now.
func WithRefs(ctx context.Context, live client.Reader, m *unstructured.Unstructured, spec *clusterv1.MachineSpec) (Objects, error) {
	infrastructure, err := external.GetObjectFromContractVersionedRef(ctx, live, spec.InfrastructureRef, m.GetNamespace())
	if err != nil {
		return nil, fmt.Errorf("read the infrastructure machine: %w", err)
	}
	objects := Objects{fieldset.Machine: m, fieldset.InfrastructureMachine: infrastructure}
	if ref := spec.Bootstrap.ConfigRef; ref.IsDefined() {
		if objects[fieldset.BootstrapConfig], err = external.GetObjectFromContractVersionedRef(ctx, live, ref, m.GetNamespace()); err != nil {
			return nil, fmt.Errorf("read the bootstrap config: %w", err)
		}
	}
	return objects, nil
}

// After returns what a Machine and its objects are to be after a change. Of the Machine itself that is its version: nothing else of it is ever written.
func (o Objects) After(change fieldset.Change) (Objects, error) {
	desired := Objects{}
	for of, object := range o {
		object = object.DeepCopy()
		desired[of] = object
		switch oc, differs := change.Object(of); {
		case !differs:
		case of == fieldset.Machine:
			wanted, _ := oc.Desired.Value.(map[string]any)
			if err := unstructured.SetNestedField(object.Object, wanted["version"], "spec", "version"); err != nil {
				return nil, fmt.Errorf("have the Machine be as it is wanted: %w", err)
			}
		default:
			object.Object["spec"] = oc.Desired.Value
		}
	}
	return desired, nil
}
