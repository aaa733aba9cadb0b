package health

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

const (
	// mostCost bounds an evaluation, as CEL counts: some milliseconds.
	mostCost = 1_000_000
	// checkEvery is after how many turns of a comprehension it is asked whether somebody still waits.
	checkEvery = 100
	// mostValues bounds the values that are told, and mostValue each of them, in bytes.
	mostValues, mostValue = 5, 64
)

// celQuestion evaluates an expression over objects.
type celQuestion struct {
	expression string
	objects    []refitv1.GateObject
	ast        *cel.Ast
	// program is bounded in what it costs, and explained notes values: this version of cel-go does not count the cost of what notes them.
	program, explained cel.Program
}

func (q *celQuestion) ofCluster() bool {
	for _, o := range q.objects {
		if o.Cluster == refitv1.WorkloadCluster {
			return true
		}
	}
	return false
}

var variable = regexp.MustCompile(`^[a-z][a-zA-Z0-9_]*$`)

func (r *reader) cel(c *refitv1.CELGate) *celQuestion {
	q := &celQuestion{expression: c.Expression, objects: c.Objects}
	options := language()
	named := map[string]bool{}
	for i := range c.Objects {
		o, field := &c.Objects[i], fmt.Sprintf("cel.objects[%d]", i)
		switch {
		case !variable.MatchString(o.Name):
			r.wrong(field+".name", fmt.Errorf("%q is no name of a variable", o.Name))
		case named[o.Name]:
			r.wrong(field+".name", fmt.Errorf("another object has the name %q", o.Name))
		default:
			options = append(options, cel.Variable(o.Name, cel.DynType))
		}
		named[o.Name] = true
		r.object(field, o)
	}
	if len(c.Objects) == 0 {
		r.wrong("cel.objects", errors.New("there is none"))
	}
	r.wrong("cel.expression", q.compile(options))
	return q
}

// object looks at what the CustomResourceDefinition has checked before, for an API server that has not the same one. No Secret is read, whoever
// writes it how.
func (r *reader) object(field string, o *refitv1.GateObject) {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	switch {
	case err != nil || gv.Version == "":
		r.wrong(field+".apiVersion", fmt.Errorf("%q is none", o.APIVersion))
	case gv.Group == "" && strings.EqualFold(o.Kind, "Secret"):
		r.wrong(field+".kind", errors.New("a gate can't be about Secrets: messages show what it reads"))
	case gv.Group == "bootstrap.cluster.x-k8s.io":
		r.wrong(field+".apiVersion", errors.New("a gate can't be about what nodes are bootstrapped from: it has secrets"))
	}
	if o.Kind == "" || o.ObjectName == "" {
		r.wrong(field, errors.New("it is to have kind and objectName"))
	}
	r.whose(field, o)
}

// whose looks at which cluster has an object, and where.
func (r *reader) whose(field string, o *refitv1.GateObject) {
	switch o.Cluster {
	case refitv1.ManagementCluster:
		if o.Namespace != "" {
			r.wrong(field+".namespace", errors.New("objects of the management cluster are those of the policy's namespace: leave it out"))
		}
	case refitv1.WorkloadCluster:
	default:
		r.wrong(field+".cluster", fmt.Errorf("%q is not known", o.Cluster))
	}
}

// compile reads the expression.
func (q *celQuestion) compile(options []cel.EnvOption) error {
	env, err := cel.NewEnv(options...)
	if err != nil {
		return err
	}
	checked, issues := env.Compile(q.expression)
	if err := issues.Err(); err != nil {
		return errors.New(short(err.Error(), 2*mostTold))
	}
	if out := checked.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		return fmt.Errorf("it is a %s, and is to be true or false", out)
	}
	if err := bound(checked.NativeRep()); err != nil {
		return err
	}
	q.ast = checked
	if q.program, err = env.Program(checked, cel.CostTracking(costs{}), cel.CostLimit(mostCost), cel.InterruptCheckFrequency(checkEvery)); err != nil {
		return err
	}
	q.explained, err = env.Program(checked, cel.EvalOptions(cel.OptTrackState), cel.InterruptCheckFrequency(checkEvery))
	return err
}

// ask implements question.
func (q *celQuestion) ask(ctx context.Context, from *Sources, about Subject) (verdict, error) {
	variables := map[string]any{}
	for i := range q.objects {
		obj, err := read(ctx, from, about, &q.objects[i])
		if err != nil {
			return verdict{}, err
		}
		variables[q.objects[i].Name] = obj.Object
	}
	result, _, err := q.program.ContextEval(ctx, variables)
	if err != nil {
		return verdict{}, fmt.Errorf("%s: %s", short(q.expression, mostTold), short(err.Error(), mostTold))
	}
	holds, ok := result.Value().(bool)
	if !ok {
		return verdict{}, fmt.Errorf("%s is neither true nor false", short(q.expression, mostTold))
	}
	if holds {
		return verdict{holds: true}, nil
	}
	says := short(q.expression, mostTold) + " is false"
	if _, details, err := q.explained.ContextEval(ctx, variables); err == nil { // it costs as much once more
		if values := q.values(details); len(values) > 0 {
			says += ": " + strings.Join(values, ", ")
		}
	}
	return verdict{says: says}, nil
}

// read reads an object.
func read(ctx context.Context, from *Sources, about Subject, o *refitv1.GateObject) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(o.APIVersion)
	obj.SetKind(o.Kind)
	key := client.ObjectKey{Namespace: about.Namespace, Name: o.ObjectName}
	reader := from.Management
	what := fmt.Sprintf("%s %s of the management cluster", o.Kind, key)
	if o.Cluster == refitv1.WorkloadCluster {
		cluster, err := from.Workloads.Get(ctx, client.ObjectKey{Namespace: about.Namespace, Name: about.Cluster})
		if err != nil {
			return nil, errors.New(short(err.Error(), 2*mostTold))
		}
		reader, key.Namespace = cluster.Client, o.Namespace
		what = fmt.Sprintf("%s %s of the workload cluster", o.Kind, strings.TrimPrefix(key.String(), "/"))
	}
	if err := reader.Get(ctx, key, obj); err != nil {
		return nil, fmt.Errorf("read %s: %s", what, short(err.Error(), 2*mostTold))
	}
	if o.Cluster == refitv1.ManagementCluster && (obj.GetNamespace() == "" || obj.GetNamespace() != about.Namespace) {
		// A kind without namespaces is read whatever namespace is asked for.
		return nil, fmt.Errorf("%s is in no namespace, and a gate reads the management cluster in the policy's only", what)
	}
	withoutBootstrap(obj)
	return obj, nil
}

// withoutBootstrap takes away of a control plane what its nodes are bootstrapped from, which is its spec, and what repeats it: how a control plane fares is
// its status.
func withoutBootstrap(obj *unstructured.Unstructured) {
	if obj.GroupVersionKind().Group == "controlplane.cluster.x-k8s.io" {
		delete(obj.Object, "spec")
		obj.SetAnnotations(nil)
		obj.SetManagedFields(nil)
	}
}

// comparisons are the functions whose operands people want to see.
var comparisons = map[string]bool{
	operators.Equals: true, operators.NotEquals: true, operators.Less: true, operators.LessEquals: true,
	operators.Greater: true, operators.GreaterEquals: true, operators.In: true,
}

// values returns what was compared, for people: those operands that are no literals and have a plain value.
func (q *celQuestion) values(details *cel.EvalDetails) []string {
	native := q.ast.NativeRep()
	var out []string
	for _, call := range ast.MatchDescendants(ast.NavigateAST(native), ast.KindMatcher(ast.CallKind)) {
		if !comparisons[call.AsCall().FunctionName()] || looped(call) {
			continue
		}
		for _, operand := range call.AsCall().Args() {
			if told := tellOperand(operand, native.SourceInfo(), details); told != "" && !slices.Contains(out, told) {
				out = append(out, told)
			}
		}
	}
	return out[:min(len(out), mostValues)]
}

// tellOperand returns an operand with the value that it had, or nothing if it is a literal, has no plain value, or was not needed.
func tellOperand(operand ast.Expr, source *ast.SourceInfo, details *cel.EvalDetails) string {
	value, ok := details.State().Value(operand.ID())
	if operand.Kind() == ast.LiteralKind || !ok {
		return ""
	}
	shown, plain := plainValue(value)
	text, err := cel.ExprToString(operand, source)
	if !plain || err != nil {
		return ""
	}
	return short(text, mostTold) + " is " + shown
}

// looped reports whether an expression is in a comprehension, whose turns each have values of their own.
func looped(e ast.NavigableExpr) bool {
	for p, ok := e.Parent(); ok; p, ok = p.Parent() {
		if p.Kind() == ast.ComprehensionKind {
			return true
		}
	}
	return false
}

func plainValue(v ref.Val) (string, bool) {
	switch v := v.(type) {
	case types.Bool, types.Int, types.Uint, types.Double:
		return fmt.Sprint(v.Value()), true
	case types.String:
		return fmt.Sprintf("%q", short(string(v), mostValue)), true
	case types.Null:
		return "null", true
	default:
		return "", false
	}
}
