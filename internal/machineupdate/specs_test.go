package machineupdate

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/fieldset"
)

// newerAPI reads from an API server whose Machines have a field that this program's types lack.
type newerAPI struct{ client.Reader }

func (r newerAPI) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := r.Reader.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	if raw, ok := obj.(*unstructured.Unstructured); ok && raw.GetKind() == "Machine" {
		return unstructured.SetNestedField(raw.Object, "b", "spec", "newer", "a")
	}
	return nil
}

// TestAMachineHasAFieldOfANewerClusterAPI: Cluster API has it in its requests, so that it must be in what they are compared with.
func TestAMachineHasAFieldOfANewerClusterAPI(t *testing.T) {
	w := newWorld(t)
	before := w.specs()
	machine, spec, err := readMachine(t.Context(), newerAPI{w}, key)
	require.NoError(t, err)
	require.Equal(t, "v1.36.0", machine.Spec.Version)
	got, err := readSpecs(t.Context(), newerAPI{w}, machine, spec)
	require.NoError(t, err)
	require.NotEqual(t, before.digest, got.digest)

	request := map[string]any{"clusterName": "c1", "version": "v1.36.0", "bootstrap": map[string]any{}, "newer": map[string]any{"a": "b"}}
	want, err := fieldset.Digest(map[fieldset.Object]any{
		fieldset.Machine:               request,
		fieldset.InfrastructureMachine: got.desired.InfrastructureMachine.Value,
		fieldset.BootstrapConfig:       got.desired.BootstrapConfig.Value,
	})
	require.NoError(t, err)
	require.Equal(t, want, got.digest)
}
