package protection

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

const account = "system:serviceaccount:refit-system:refit"

var strict = serializer.NewCodecFactory(clientgoscheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// manifests decodes a file that workload clusters get, as strictly as the API server.
func manifests(t *testing.T, name string) []runtime.Object {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "config", "workload", name)) // "../rbac/…" is the management cluster's
	require.NoError(t, err)
	var out []runtime.Object
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		obj, _, err := strict.Decode(doc, nil, nil)
		require.NoError(t, err, "%s: %s", name, doc)
		out = append(out, obj)
	}
}

// evaluator compiles a policy as the API server does.
func evaluator(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	require.NoError(t, err)
	opts := cel.OptionalVariableDeclarations{HasAuthorizer: true, HasParams: policy.Spec.ParamKind != nil}
	variables := make([]cel.NamedExpressionAccessor, len(policy.Spec.Variables))
	for i, v := range policy.Spec.Variables {
		variables[i] = &validating.Variable{Name: v.Name, Expression: v.Expression}
	}
	compiler.CompileAndStoreVariables(variables, opts, environment.StoredExpressions)
	compile := func(expressions []cel.ExpressionAccessor, opts cel.OptionalVariableDeclarations) cel.ConditionEvaluator {
		e := compiler.CompileCondition(expressions, opts, environment.StoredExpressions)
		require.Empty(t, e.CompilationErrors())
		return e
	}
	var conditions, validations, messages []cel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		var expression cel.ExpressionAccessor // nil where there is only a message
		if v.MessageExpression != "" {
			expression = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
		messages = append(messages, expression)
	}
	// The policy lets pass what it can't evaluate. Here that must be seen.
	failurePolicy := ptr.To(admissionregistrationv1.Fail)
	matcher := matchconditions.NewMatcher(compile(conditions, opts), failurePolicy, "policy", "validate", policy.Name)
	return validating.NewValidator(
		compile(validations, opts), matcher, compile(nil, opts), compile(messages, cel.OptionalVariableDeclarations{HasParams: opts.HasParams}), failurePolicy, nil)
}

func TestWhoIsWarned(t *testing.T) {
	objects := manifests(t, "warning.yaml")
	require.Len(t, objects, 2)
	policy := objects[0].(*admissionregistrationv1.ValidatingAdmissionPolicy)
	binding := objects[1].(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
	require.Equal(t, policy.Name, binding.Spec.PolicyName)
	require.Equal(t, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}, binding.Spec.ValidationActions)
	require.Equal(t, admissionregistrationv1.Ignore, *policy.Spec.FailurePolicy)

	bob := &user.DefaultInfo{Name: "bob", Groups: []string{"system:authenticated"}}
	kubelet := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"}}
	updating := func(change func(*corev1.Node)) *corev1.Node {
		n := testNode(nil, map[string]string{UpdatingAnnotation: "machine-1"})
		if change != nil {
			change(n)
		}
		return n
	}
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	tainted := func(effects ...corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) {
			for _, e := range effects {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "example.org/" + string(e), Effect: e})
			}
		}
	}
	free := func(n *corev1.Node) { n.Annotations = nil }
	const advice = ": refit is updating node n1 in place now. To have it finish its step and stop, run refit hold, or: kubectl annotate node n1 " + refitv1.HoldAnnotation + "=true"

	tests := map[string]struct {
		who         user.Info
		before, now *corev1.Node // now nil: deleted
		want        []string
	}{
		"cordon":                           {bob, updating(nil), updating(cordoned), []string{"cordoned during an update" + advice}},
		"cordon a free node":               {bob, updating(free), updating(func(n *corev1.Node) { free(n); cordoned(n) }), nil},
		"cordon what is cordoned":          {bob, updating(cordoned), updating(cordoned), nil},
		"uncordon":                         {bob, updating(cordoned), updating(nil), nil},
		"label":                            {bob, updating(nil), updating(func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }), nil},
		"cordon by refit":                  {&user.DefaultInfo{Name: account}, updating(nil), updating(cordoned), nil},
		"cordon by another account":        {&user.DefaultInfo{Name: "system:serviceaccount:other:refit"}, updating(nil), updating(cordoned), []string{"cordoned during an update" + advice}},
		"cordon and remove the annotation": {bob, updating(nil), updating(func(n *corev1.Node) { free(n); cordoned(n) }), []string{"cordoned during an update" + advice}},
		"NoSchedule":                       {bob, updating(nil), updating(tainted(corev1.TaintEffectNoSchedule)), []string{"tainted during an update" + advice}},
		"NoExecute beside NoSchedule": {bob, updating(tainted(corev1.TaintEffectNoSchedule)), updating(tainted(corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)),
			[]string{"tainted during an update" + advice}},
		"PreferNoSchedule":             {bob, updating(nil), updating(tainted(corev1.TaintEffectPreferNoSchedule)), nil},
		"a taint that was there":       {bob, updating(tainted(corev1.TaintEffectNoExecute)), updating(tainted(corev1.TaintEffectNoExecute)), nil},
		"a taint goes":                 {bob, updating(tainted(corev1.TaintEffectNoExecute)), updating(nil), nil},
		"a taint by a kubelet":         {kubelet, updating(nil), updating(tainted(corev1.TaintEffectNoSchedule)), nil},
		"a taint by node-controller":   {&user.DefaultInfo{Name: "system:serviceaccount:kube-system:node-controller"}, updating(nil), updating(tainted(corev1.TaintEffectNoExecute)), nil},
		"cordon and taint":             {bob, updating(nil), updating(func(n *corev1.Node) { cordoned(n); tainted(corev1.TaintEffectNoExecute)(n) }), []string{"cordoned during an update" + advice, "tainted during an update" + advice}},
		"delete":                       {bob, updating(cordoned), nil, []string{"deleted during an update: what refit has begun on node n1 goes on there, and its lease goes with the Node"}},
		"delete a free node":           {bob, updating(free), nil, nil},
		"delete by refit, which can't": {&user.DefaultInfo{Name: account}, updating(nil), nil, nil},
	}
	v := evaluator(t, policy)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, warnings(t, v, tt.who, tt.before, tt.now))
		})
	}
}

// warnings returns what a policy says of a change of a Node.
func warnings(t *testing.T, v validating.Validator, who user.Info, before, now *corev1.Node) []string {
	t.Helper()
	gvk, gvr := corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithResource("nodes")
	operation, object := admission.Update, runtime.Object(now)
	if now == nil {
		operation, object = admission.Delete, nil
	}
	attributes := admission.NewAttributesRecord(object, before, gvk, "", before.Name, gvr, "", operation, &metav1.UpdateOptions{}, false, who)
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: gvk, VersionedObject: object, VersionedOldObject: before}
	result := v.Validate(t.Context(), gvr, versioned, nil, nil, celconfig.RuntimeCELCostBudget, nil)
	var messages []string
	for _, d := range result.Decisions {
		require.NotEqual(t, validating.EvalError, d.Evaluation, d.Message)
		if d.Action == validating.ActionDeny {
			messages = append(messages, d.Message)
		}
	}
	return messages
}

// What refit may do in a workload cluster is what it does there, and no more.
func TestRights(t *testing.T) {
	type grant struct{ namespace, group, resource string }
	roles, bound := map[[2]string][]rbacv1.PolicyRule{}, map[[2]string]bool{}
	for _, obj := range manifests(t, "rbac.yaml") {
		switch o := obj.(type) {
		case *corev1.ServiceAccount:
			require.Equal(t, account, "system:serviceaccount:"+o.Namespace+":"+o.Name)
			require.False(t, *o.AutomountServiceAccountToken)
		case *rbacv1.ClusterRole:
			roles[[2]string{"", o.Name}] = o.Rules
		case *rbacv1.Role:
			roles[[2]string{o.Namespace, o.Name}] = o.Rules
		case *rbacv1.ClusterRoleBinding:
			requireAccount(t, o.Subjects)
			bound[[2]string{"", o.RoleRef.Name}] = o.RoleRef.Kind == "ClusterRole"
		case *rbacv1.RoleBinding:
			requireAccount(t, o.Subjects)
			bound[[2]string{o.Namespace, o.RoleRef.Name}] = o.RoleRef.Kind == "Role"
		default:
			t.Fatalf("unexpected %T", obj)
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(roles)), slices.Collect(maps.Keys(bound)))
	got := map[grant][]string{}
	for key, rules := range roles {
		require.True(t, bound[key], "%s is bound as what it is", key)
		for _, r := range rules {
			require.Empty(t, r.ResourceNames)
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					got[grant{key[0], group, resource}] = r.Verbs
				}
			}
		}
	}
	require.Equal(t, map[grant][]string{
		{"", "", "nodes"}:                                          {"get", "list", "patch"},
		{"", "", "namespaces"}:                                     {"get"},
		{"", "", "pods"}:                                           {"list"},
		{"", "", "persistentvolumes"}:                              {"list"},
		{"", "storage.k8s.io", "volumeattachments"}:                {"list"},
		{"", "", "pods/eviction"}:                                  {"create"},
		{"", "apps", "daemonsets"}:                                 {"get"},
		{"", "nodemaintenance.medik8s.io", "nodemaintenances"}:     {"list"},
		{"medik8s-leases", "coordination.k8s.io", "leases"}:        {"get", "list", "create", "update"},
		{"default", "discovery.k8s.io", "endpointslices"}:          {"list"},
		{"kube-node-maintenance", "coordination.k8s.io", "leases"}: {"get"},
		{"default", "", "events"}:                                  {"create"},
	}, got)

	namespaces := map[string]bool{"default": true}
	for _, obj := range manifests(t, "namespaces.yaml") {
		namespaces[obj.(*corev1.Namespace).Name] = true
	}
	for key := range roles {
		require.True(t, key[0] == "" || namespaces[key[0]], "the namespace of Role %s is there", key)
	}
}

func requireAccount(t *testing.T, subjects []rbacv1.Subject) {
	t.Helper()
	require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "refit-system", Name: "refit"}}, subjects)
}
