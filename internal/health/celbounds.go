package health

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// language is what expressions may use. The macros of optional values are left out: each of them copies what it is applied to, so that a chain of
// them takes more memory than there is before anything is evaluated.
func language() []cel.EnvOption {
	return []cel.EnvOption{cel.OptionalTypes(), cel.ClearMacros(), cel.Macros(cel.StandardMacros...), cel.CrossTypeNumericComparisons(true)}
}

const (
	matches = "matches"
	// mostPattern bounds what a regular expression is compiled to, in instructions: each byte of a text may have to do with all of them.
	mostPattern = 200
)

var (
	errNested  = errors.New("a list or map in it has lists or maps that the expression makes, or their sum: values would grow without a bound")
	errPattern = errors.New("the pattern of matches() is to be written out in the expression")
)

// bound returns an error for an expression whose work has no bound that its cost, which is counted after each step, could keep. What it makes can't be in
// what it makes, so that all values are about as large as the objects.
func bound(checked *ast.AST) error {
	root := ast.NavigateAST(checked)
	for _, made := range ast.MatchDescendants(root, isMade) {
		for _, element := range made.Children() {
			if len(ast.MatchDescendants(element, grows)) > 0 {
				return errNested
			}
		}
	}
	for _, call := range ast.MatchDescendants(root, ast.FunctionMatcher(matches)) {
		if err := boundPattern(call); err != nil {
			return err
		}
	}
	return nil
}

func isMade(e ast.NavigableExpr) bool {
	return slices.Contains([]ast.ExprKind{ast.ListKind, ast.MapKind, ast.StructKind}, e.Kind())
}

// grows reports whether a value is made by the expression, and may be more than a number or a text. How long texts become is counted.
func grows(e ast.NavigableExpr) bool {
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Add {
		return !slices.Contains([]types.Kind{
			types.IntKind, types.UintKind, types.DoubleKind, types.StringKind, types.BytesKind, types.DurationKind, types.TimestampKind,
		}, e.Type().Kind())
	}
	return isMade(e)
}

// boundPattern looks at a regular expression, the last argument of matches.
func boundPattern(call ast.NavigableExpr) error {
	args := call.AsCall().Args()
	if len(args) == 0 || args[len(args)-1].Kind() != ast.LiteralKind {
		return errPattern
	}
	text, ok := args[len(args)-1].AsLiteral().Value().(string)
	if !ok {
		return errPattern
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return fmt.Errorf("the pattern of matches() is none: %s", short(err.Error(), mostTold))
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(program.Inst) > mostPattern {
		return errors.New("the pattern of matches() is too large")
	}
	return nil
}

// costs counts what comparing values costs, by all that is in them.
type costs struct{}

// CallCost implements interpreter.ActualCostEstimator.
func (costs) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	if !slices.Contains([]string{operators.Equals, operators.NotEquals, operators.In}, function) {
		return nil
	}
	n := uint64(1)
	for _, a := range args {
		n += size(a, mostCost)
	}
	return &n
}

// size returns how much is in a value, and at most about so much.
func size(v ref.Val, most uint64) uint64 {
	n := uint64(1)
	switch v := v.(type) {
	case traits.Mapper:
		for it := v.Iterator(); n < most && it.HasNext() == types.True; {
			key := it.Next()
			n += size(key, most-n)
			if value, ok := v.Find(key); ok && n < most {
				n += size(value, most-n)
			}
		}
	case traits.Lister:
		for it := v.Iterator(); n < most && it.HasNext() == types.True; {
			n += size(it.Next(), most-n)
		}
	case traits.Sizer:
		if length, ok := v.Size().(types.Int); ok {
			n += uint64(length) / 10 // as cel-go counts texts
		}
	}
	return n
}
