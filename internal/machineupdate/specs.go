package machineupdate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/controllers/external"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/nodeaccess"
	"github.com/capi-refit/refit/updaters"
)

// specs are the desired specs of a machine, as they stand in the management cluster. Before it calls UpdateMachine,
// Cluster API has written the desired specs to the machine's objects.
type specs struct {
	desired updaters.Desired
	digest  string
}

// readMachine reads a Machine uncached. It returns its spec also as JSON: in a version of Cluster API that is newer than this program it
// has fields of which the Go type knows nothing, and they are in what Cluster API asks for.
func readMachine(ctx context.Context, live client.Reader, key client.ObjectKey) (*clusterv1.Machine, any, error) {
	var raw unstructured.Unstructured
	raw.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	if err := live.Get(ctx, key, &raw); err != nil {
		return nil, nil, err
	}
	machine := &clusterv1.Machine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, machine); err != nil {
		return nil, nil, fmt.Errorf("convert Machine %s: %w", key, err)
	}
	return machine, raw.Object["spec"], nil
}

// readSpecs reads the specs uncached, with what reads the Secrets that they refer to.
func (u *update) readSpecs(ctx context.Context, machine *clusterv1.Machine) (*specs, error) {
	s, err := readSpecs(ctx, u.Live, machine, u.spec)
	if err == nil {
		s.desired.Secret = u.secretReader(ctx, machine.Namespace)
	}
	return s, err
}

// readSpecs reads the specs of a Machine whose own one, as JSON, is spec.
func readSpecs(ctx context.Context, live client.Reader, machine *clusterv1.Machine, spec any) (s *specs, err error) {
	s = &specs{}
	_, s.desired.ControlPlane = machine.Labels[clusterv1.MachineControlPlaneLabel]
	s.desired.Machine = fieldset.Spec{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Value: spec}
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
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &secret)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no Secret %s/%s; clusterctl move leaves those behind that have no label %s", namespace, name, clusterctlv1.ClusterctlMoveLabel)
		}
		if err != nil {
			return nil, nodeaccess.OfAPI(fmt.Errorf("read Secret %s/%s: %w", namespace, name, err))
		}
		value, ok := secret.Data[key]
		if !ok {
			return nil, fmt.Errorf("the Secret %s/%s has no key %q", namespace, name, key)
		}
		return value, nil
	}
}
