package protection

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Those who operate updates may hold a Machine as refit hold does, and take away no more than that. Who they are is asked by a real API
// server, in test/attack.
func TestWhatOperatorsMayAddToAMachine(t *testing.T) {
	policy := manifests(t, "../rbac/operator_policy.yaml")[0].(*admissionregistrationv1.ValidatingAdmissionPolicy)
	policy.Spec.MatchConditions = nil
	v := evaluator(t, policy)
	both := merged(markedMachine, heldMachine)
	for name, tt := range map[string]struct {
		before, after map[string]string
		refused       string
	}{
		"hold":                                   {nil, heldMachine, ""},
		"release":                                {heldMachine, nil, ""},
		"hold what is updated":                   {markedMachine, both, ""},
		"release what is updated":                {both, markedMachine, ""},
		"another's skip-remediation":             {nil, map[string]string{skipRemediation: "x"}, "as refit hold does"},
		"take another's away":                    {map[string]string{skipRemediation: "x"}, nil, "as refit hold does"},
		"take it over":                           {map[string]string{skipRemediation: "x"}, map[string]string{skipRemediation: "refit"}, "as refit hold does"},
		"a hook with another value":              {map[string]string{holdHook: "x"}, nil, "as refit hold does"},
		"the hook of updates":                    {nil, map[string]string{preDrainHook: "refit"}, "and not " + preDrainHook},
		"take away the hook of updates":          {map[string]string{preDrainHook: "refit"}, nil, "and not " + preDrainHook},
		"have an updated Machine be remediated":  {markedMachine, without(markedMachine, skipRemediation), "that is being updated"},
		"say what updates have added":            {nil, map[string]string{AddedAnnotation: "x"}, "and not " + AddedAnnotation},
		"another annotation beside what is good": {nil, merged(heldMachine, map[string]string{"a": "b"}), "and not a"},
	} {
		t.Run(name, func(t *testing.T) {
			gvk, gvr := clusterv1.GroupVersion.WithKind("Machine"), clusterv1.GroupVersion.WithResource("machines")
			before, after := testMachine(tt.before), testMachine(tt.after)
			attributes := admission.NewAttributesRecord(after, before, gvk, machine.Namespace, machine.Name, gvr, "", admission.Update,
				&metav1.UpdateOptions{}, false, &user.DefaultInfo{Name: "ann"})
			result := v.Validate(t.Context(), gvr, &admission.VersionedAttributes{
				Attributes: attributes, VersionedKind: gvk, VersionedObject: after, VersionedOldObject: before,
			}, nil, nil, celconfig.RuntimeCELCostBudget, nil)
			refused := ""
			for _, d := range result.Decisions {
				require.NotEqual(t, validating.EvalError, d.Evaluation, d.Message)
				if d.Action == validating.ActionDeny {
					refused += d.Message
				}
			}
			if tt.refused == "" {
				require.Empty(t, refused)
			}
			require.Contains(t, refused, tt.refused)
		})
	}
}

func without(all map[string]string, key string) map[string]string {
	out := merged(all)
	delete(out, key)
	return out
}
