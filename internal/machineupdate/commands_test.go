package machineupdate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/machineupdate/flow"
)

// TestAllCommandsAreKnown: what flow can ask for is done, and nothing else.
func TestAllCommandsAreKnown(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "flow/decide.go", nil, 0)
	require.NoError(t, err)
	var known []flow.Command
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == "Command" {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			known = append(known, flow.Command(value))
		}
		return true
	})
	require.Greater(t, len(known), 30)
	for _, c := range known {
		require.Contains(t, commands, c)
	}
	require.Len(t, commands, len(known))
}
