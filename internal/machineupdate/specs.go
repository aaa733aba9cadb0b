package machineupdate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters"
)

// specs are the desired specs of a machine, as they stand in the management cluster. Before it calls UpdateMachine,
// Cluster API has written the desired specs to the machine's objects.
type specs struct {
	desired updaters.Desired
	digest  string
}

// readSpecs reads the specs uncached, with what reads the Secrets that they refer to.
func (r *Reconciler) readSpecs(ctx context.Context, machine *clusterv1.Machine) (*specs, error) {
	s, err := readSpecs(ctx, r.Live, machine)
	if err == nil {
		s.desired.Secret = r.secretReader(ctx, machine.Namespace)
	}
	return s, err
}

func readSpecs(ctx context.Context, live client.Reader, machine *clusterv1.Machine) (*specs, error) {
	s := &specs{}
	_, s.desired.ControlPlane = machine.Labels[clusterv1.MachineControlPlaneLabel]
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(machine)
	if err != nil {
		return nil, fmt.Errorf("convert Machine %s: %w", machine.Name, err)
	}
	s.desired.Machine = fieldset.Spec{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Value: raw["spec"]}
	if s.desired.InfrastructureMachine, err = readSpec(ctx, live, machine.Namespace, machine.Spec.InfrastructureRef); err != nil {
		return nil, err
	}
	if ref := machine.Spec.Bootstrap.ConfigRef; ref.IsDefined() {
		if s.desired.BootstrapConfig, err = readSpec(ctx, live, machine.Namespace, ref); err != nil {
			return nil, err
		}
	}
	s.digest, err = fieldset.Digest(map[fieldset.Object]any{
		fieldset.Machine:               s.desired.Machine.Value,
		fieldset.InfrastructureMachine: s.desired.InfrastructureMachine.Value,
		fieldset.BootstrapConfig:       s.desired.BootstrapConfig.Value,
	})
	return s, err
}

func readSpec(ctx context.Context, live client.Reader, namespace string, ref clusterv1.ContractVersionedObjectReference) (fieldset.Spec, error) {
	obj, err := external.GetObjectFromContractVersionedRef(ctx, live, ref, namespace)
	if err != nil {
		return fieldset.Spec{}, fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	return fieldset.Spec{APIVersion: obj.GetAPIVersion(), Kind: ref.Kind, Value: obj.Object["spec"]}, nil
}

// secretReader reads single keys of Secrets, uncached. Its errors name the Secret and never show a value.
func (r *Reconciler) secretReader(ctx context.Context, namespace string) func(name, key string) ([]byte, error) {
	return func(name, key string) ([]byte, error) {
		var secret corev1.Secret
		if err := r.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &secret); err != nil {
			return nil, fmt.Errorf("read Secret %s/%s: %w", namespace, name, err)
		}
		value, ok := secret.Data[key]
		if !ok {
			return nil, fmt.Errorf("the Secret %s/%s has no key %q", namespace, name, key)
		}
		return value, nil
	}
}
