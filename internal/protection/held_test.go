package protection

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/capi-refit/refit/internal/lease"
)

// warns demands that a policy and its binding warn, and never refuse, and returns what evaluates the policy.
func warns(t *testing.T, file string) (validating.Validator, *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	objects := manifests(t, file)
	require.Len(t, objects, 2)
	policy := objects[0].(*admissionregistrationv1.ValidatingAdmissionPolicy)
	binding := objects[1].(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
	require.Equal(t, policy.Name, binding.Spec.PolicyName)
	require.Equal(t, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}, binding.Spec.ValidationActions)
	require.Equal(t, admissionregistrationv1.Ignore, *policy.Spec.FailurePolicy)
	return evaluator(t, policy), binding
}

// decide returns what a policy says of a change: of one that makes an object if there was none before, and deletes it if there is none now.
func decide(t *testing.T, v validating.Validator, before, now *unstructured.Unstructured, params runtime.Object) []string {
	t.Helper()
	of, operation := now, admission.Update
	var object, old runtime.Object
	if now == nil {
		of, operation = before, admission.Delete
	} else {
		object = now
	}
	if before == nil {
		operation = admission.Create
	} else {
		old = before
	}
	gvk := of.GroupVersionKind()
	gvr := gvk.GroupVersion().WithResource("things")
	attributes := admission.NewAttributesRecord(object, old, gvk, of.GetNamespace(), of.GetName(), gvr, "", operation, &metav1.UpdateOptions{}, false, &user.DefaultInfo{Name: "bob"})
	var versioned runtime.Object
	if params != nil {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(params)
		require.NoError(t, err)
		versioned = &unstructured.Unstructured{Object: content}
	}
	result := v.Validate(t.Context(), gvr, &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: gvk, VersionedObject: object, VersionedOldObject: old,
	}, versioned, nil, celconfig.RuntimeCELCostBudget, nil)
	var messages []string
	for _, d := range result.Decisions {
		require.NotEqual(t, validating.EvalError, d.Evaluation, d.Message)
		if d.Action == validating.ActionDeny {
			messages = append(messages, d.Message)
		}
	}
	return messages
}

func TestWhoMaintainsANodeThatIsUpdatedIsWarned(t *testing.T) {
	v, binding := warns(t, "maintenance.yaml")
	require.Equal(t, &metav1.LabelSelector{}, binding.Spec.ParamRef.Selector, "all Nodes")
	require.Equal(t, admissionregistrationv1.AllowAction, *binding.Spec.ParamRef.ParameterNotFoundAction)
	maintenance := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "nm"}, "spec": map[string]any{"nodeName": node.Name}}}
	maintenance.SetGroupVersionKind(lease.NodeMaintenanceGVK)
	updating := testNode(nil, map[string]string{UpdatingAnnotation: "machine-1"})
	require.Equal(t, []string{"maintenance during an update: refit is updating node n1 in place now. It ends its step, stops, and gives the lease of the node back: " +
		"wait for that before you touch the node"}, decide(t, v, nil, maintenance, updating))
	require.Empty(t, decide(t, v, nil, maintenance, testNode(nil, nil)))
	require.Empty(t, decide(t, v, nil, maintenance, testNode(nil, map[string]string{"a": "b"})))
	other := updating.DeepCopy()
	other.Name = "n2"
	require.Empty(t, decide(t, v, nil, maintenance, other))
}

func TestWhoEditsWhatOwnsHeldMachinesIsWarned(t *testing.T) {
	v, _ := warns(t, "../rbac/held_policy.yaml")
	object := func(annotations map[string]any, spec map[string]any) *unstructured.Unstructured {
		metadata := map[string]any{"namespace": "fleet", "name": "prod"}
		if annotations != nil {
			metadata["annotations"] = annotations
		}
		all := map[string]any{"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane", "metadata": metadata}
		if spec != nil {
			all["spec"] = spec
		}
		return &unstructured.Unstructured{Object: all}
	}
	held := map[string]any{"capi-refit.dev/held": "m1 by alice (disk swap)"}
	three, two := map[string]any{"replicas": int64(3)}, map[string]any{"replicas": int64(2)}
	warning := []string{"machines of prod are held: m1 by alice (disk swap). Refit leaves these alone until they are released, and Cluster API waits with " +
		"the deletion of those that people hold"}
	require.Equal(t, warning, decide(t, v, object(held, three), object(held, two), nil))
	require.Equal(t, warning, decide(t, v, object(held, three), object(nil, two), nil), "who takes the note away")
	require.Equal(t, warning, decide(t, v, object(held, three), nil, nil), "who deletes it")
	require.Equal(t, warning, decide(t, v, object(held, nil), object(held, two), nil))
	require.Empty(t, decide(t, v, object(held, three), object(nil, three), nil), "what changes no machine")
	require.Empty(t, decide(t, v, object(nil, three), object(held, three), nil))
	require.Empty(t, decide(t, v, object(nil, three), object(nil, two), nil), "nothing is held")
	require.Empty(t, decide(t, v, object(map[string]any{"a": "b"}, three), nil, nil))
}
