package grafana

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// served are the metrics that refit serves, with their labels, by name: what its source declares.
func served(t *testing.T) map[string][]string {
	t.Helper()
	all, _ := declared(t)
	return all
}

// declaredHelp are their help texts.
func declaredHelp(t *testing.T) map[string]string {
	t.Helper()
	_, helps := declared(t)
	return helps
}

func declared(t *testing.T) (all map[string][]string, helps map[string]string) {
	t.Helper()
	all, helps = map[string][]string{}, map[string]string{}
	for _, root := range []string{"internal", "handlers", "webhook"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", "..", root), func(dir string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			files, err := filepath.Glob(filepath.Join(dir, "*.go"))
			if err != nil {
				return err
			}
			p := source{t: t, lists: map[string][]string{}, metrics: all, helps: helps}
			for _, file := range files {
				if !strings.HasSuffix(file, "_test.go") {
					parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
					require.NoError(t, err)
					p.files = append(p.files, parsed)
				}
			}
			p.read()
			return nil
		}))
	}
	require.Greater(t, len(all), 30)
	return all, helps
}

// source is a package.
type source struct {
	t       *testing.T
	files   []*ast.File
	lists   map[string][]string // lists of labels that have a name
	metrics map[string][]string
	helps   map[string]string
}

func (p *source) read() {
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				for i, value := range spec.Values {
					if list, ok := p.strings(value); ok {
						p.lists[spec.Names[i].Name] = list
					}
				}
			}
			return true
		})
	}
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				p.call(call)
			}
			return true
		})
	}
}

// call takes down a metric that a call declares: NewDesc(name, help, labels, constant) or NewGaugeVec(Opts{Name: …}, labels) and the like.
func (p *source) call(call *ast.CallExpr) {
	if len(call.Args) == 0 {
		return
	}
	name, _ := text(call.Args[0])
	if len(call.Args) > 1 && strings.HasPrefix(name, "refit_") {
		p.helps[name], _ = text(call.Args[1])
	}
	var labels []string
	switch first := call.Args[0].(type) {
	case *ast.CompositeLit:
		name, labels = p.options(first)
		if len(call.Args) > 1 {
			if more, ok := p.strings(call.Args[1]); ok {
				labels = append(labels, more...)
			}
		}
		if selector, ok := first.Type.(*ast.SelectorExpr); ok && selector.Sel.Name == "HistogramOpts" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				p.metric(name+suffix, append(slices.Clone(labels), "le"))
			}
		}
	default:
		if len(call.Args) > 2 {
			list, ok := p.strings(call.Args[2])
			id, isName := call.Args[2].(*ast.Ident)
			require.True(p.t, ok || isName && id.Name == "nil" || !strings.HasPrefix(name, "refit_"), "the labels of %s are not understood", name)
			labels = list
		}
	}
	p.metric(name, labels)
}

func (p *source) metric(name string, labels []string) {
	if strings.HasPrefix(name, "refit_") {
		p.metrics[name] = labels
	}
}

// options returns name and constant labels of Opts.
func (p *source) options(lit *ast.CompositeLit) (name string, labels []string) {
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch key, _ := kv.Key.(*ast.Ident); {
		case key == nil:
		case key.Name == "Name":
			name, _ = text(kv.Value)
		case key.Name == "Help":
			p.helps[name], _ = text(kv.Value)
		case key.Name == "ConstLabels":
			constant, ok := kv.Value.(*ast.CompositeLit)
			require.True(p.t, ok, "the labels of %s are not understood", name)
			for _, one := range constant.Elts {
				pair, ok := one.(*ast.KeyValueExpr)
				require.True(p.t, ok)
				label, _ := text(pair.Key)
				labels = append(labels, label)
			}
		}
	}
	return name, labels
}

// strings returns what a list of texts has, or the list that a name stands for.
func (p *source) strings(e ast.Expr) (out []string, ok bool) {
	switch e := e.(type) {
	case *ast.Ident:
		out, ok = p.lists[e.Name]
		return out, ok
	case *ast.CompositeLit:
		if _, list := e.Type.(*ast.ArrayType); !list {
			return nil, false
		}
		for _, one := range e.Elts {
			s, is := text(one)
			if !is {
				return nil, false
			}
			out = append(out, s)
		}
		return out, true
	default:
		return nil, false
	}
}

func text(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

func TestServed(t *testing.T) {
	all := served(t)
	require.Equal(t, []string{"namespace", "phase", "reason"}, all["refit_machine_updates"])
	require.Equal(t, []string{"class", "result", "le"}, all["refit_machine_update_duration_seconds_bucket"])
	require.Equal(t, []string{"hook", "status", "le"}, all["refit_hook_request_duration_seconds_bucket"])
	require.Equal(t, []string{"version", "goversion"}, all["refit_build_info"])
	require.Contains(t, all, "refit_audit_log_lost")
	require.Empty(t, all["refit_audit_log_lost"])
	require.Equal(t, []string{"namespace", "policy", "cluster", "role"}, all["refit_change_management_change_pending"])
}
