// Package question makes the requests by which Cluster API asks about changes, of objects as they are.
package question

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/fieldset"
)

// Objects are a Machine with what it is made of, or a MachineSet with its templates.
type Objects map[fieldset.Object]*unstructured.Unstructured

// The fields of requests in which objects are.
var (
	ofMachine = map[fieldset.Object]string{
		fieldset.Machine: "machine", fieldset.InfrastructureMachine: "infrastructureMachine", fieldset.BootstrapConfig: "bootstrapConfig",
	}
	ofMachineSet = map[fieldset.Object]string{
		fieldset.Machine: "machineSet", fieldset.InfrastructureMachine: "infrastructureMachineTemplate", fieldset.BootstrapConfig: "bootstrapConfigTemplate",
	}
)

// CanUpdateMachine returns a CanUpdateMachineRequest.
func CanUpdateMachine(current, desired Objects) ([]byte, error) {
	return request("CanUpdateMachineRequest", map[string]any{"current": asked(ofMachine, current), "desired": asked(ofMachine, desired)})
}

// CanUpdateMachineSet returns a CanUpdateMachineSetRequest.
func CanUpdateMachineSet(current, desired Objects) ([]byte, error) {
	return request("CanUpdateMachineSetRequest", map[string]any{"current": asked(ofMachineSet, current), "desired": asked(ofMachineSet, desired)})
}

// UpdateMachine returns an UpdateMachineRequest.
func UpdateMachine(desired Objects) ([]byte, error) {
	return request("UpdateMachineRequest", map[string]any{"desired": asked(ofMachine, desired)})
}

func request(kind string, fields map[string]any) ([]byte, error) {
	fields["apiVersion"], fields["kind"] = runtimehooksv1.GroupVersion.String(), kind
	return json.Marshal(fields)
}

// asked are objects by the fields of a request.
func asked(fields map[fieldset.Object]string, objects Objects) map[string]any {
	out := map[string]any{}
	for of, o := range objects {
		if o != nil {
			out[fields[of]] = sent(o)
		}
	}
	return out
}

// sent is what Cluster API sends of an object.
func sent(o *unstructured.Unstructured) map[string]any {
	annotations := o.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	metadata := map[string]any{"name": o.GetName(), "namespace": o.GetNamespace()}
	if l := o.GetLabels(); len(l) > 0 {
		metadata["labels"] = l
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	return map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "metadata": metadata, "spec": o.Object["spec"]}
}
