package question

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capi-refit/refit/internal/fieldset"
)

// TestWhatIsSentOfAnObject is what Cluster API sends: no status, no other metadata, and not what was last applied, which may have secrets in it.
func TestWhatIsSentOfAnObject(t *testing.T) {
	m := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "spec": map[string]any{"version": "v1.36.0"}, "status": map[string]any{"phase": "Running"},
		"metadata": map[string]any{
			"name": "m1", "namespace": "lab", "uid": "uid-m1", "labels": map[string]any{"a": "b"},
			"annotations": map[string]any{"c": "d", corev1.LastAppliedConfigAnnotation: "secret"},
		},
	}}
	desired, err := Objects{fieldset.Machine: m}.After(fieldset.Change{{
		Object: fieldset.Machine, Desired: fieldset.Spec{Value: map[string]any{"version": "v1.36.1", "providerID": "x"}},
	}})
	require.NoError(t, err)
	request, err := CanUpdateMachine(Objects{fieldset.Machine: m, fieldset.BootstrapConfig: nil}, desired)
	require.NoError(t, err)
	const want = `{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m1", "namespace": "lab", "labels": {"a": "b"}, "annotations": {"c": "d"}}, `
	require.JSONEq(t, want+`"spec": {"version": "v1.36.0"}}`, gjson.GetBytes(request, "current.machine").Raw)
	require.JSONEq(t, want+`"spec": {"version": "v1.36.1"}}`, gjson.GetBytes(request, "desired.machine").Raw)
	require.False(t, gjson.GetBytes(request, "current.bootstrapConfig").Exists(), "it has none")
	require.Equal(t, "secret", m.GetAnnotations()[corev1.LastAppliedConfigAnnotation], "the object is left as it was")
}
