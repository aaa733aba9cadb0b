// Package metrics reads out of the source which metrics refit serves, for the pages, dashboards and tests that name them.
package metrics

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Metric is one that refit serves.
type Metric struct {
	Name, Help string
	Type       Type
	Labels     []string
}

// Type is a metric's, as Prometheus writes it.
type Type string

// Types of metrics.
const (
	Gauge     Type = "gauge"
	Counter   Type = "counter"
	Histogram Type = "histogram"
)

// directories have all packages that serve metrics.
var directories = []string{"internal", "handlers", "webhook"}

// Read returns the metrics that the source in a checkout declares, by name.
func Read(root string) ([]Metric, error) {
	all := map[string]*Metric{}
	for _, dir := range directories {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			return readPackage(path, all)
		})
		if err != nil {
			return nil, err
		}
	}
	out := make([]Metric, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, *all[name])
	}
	return out, nil
}

func readPackage(dir string, all map[string]*Metric) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	p := source{lists: map[string][]string{}, descriptions: map[string]string{}, metrics: all}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.files = append(p.files, parsed)
	}
	if err := p.read(); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// source is a package.
type source struct {
	files        []*ast.File
	lists        map[string][]string // lists of labels that have a name
	descriptions map[string]string   // names of metrics, by the variable with their description
	metrics      map[string]*Metric
	problems     []error
}

func (p *source) read() error {
	each(p, func(spec *ast.ValueSpec) {
		for i, value := range spec.Values {
			if list, ok := p.strings(value); ok {
				p.lists[spec.Names[i].Name] = list
			}
			if call, ok := value.(*ast.CallExpr); ok && calls(call) == "NewDesc" && len(call.Args) > 0 {
				p.descriptions[spec.Names[i].Name], _ = text(call.Args[0])
			}
		}
	})
	each(p, p.call)
	each(p, p.sample)
	return errors.Join(p.problems...)
}

// each calls visit with each node of a kind.
func each[N ast.Node](p *source, visit func(N)) {
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if node, ok := n.(N); ok {
				visit(node)
			}
			return true
		})
	}
}

// calls returns the name of what is called.
func calls(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	default:
		return ""
	}
}

// call takes down a metric that a call declares: NewDesc(name, help, labels, constant) or NewGaugeVec(Opts{Name: …}, labels) and the like.
func (p *source) call(call *ast.CallExpr) {
	if len(call.Args) == 0 {
		return
	}
	var m Metric
	if options, ok := call.Args[0].(*ast.CompositeLit); ok {
		m = p.options(options)
		if len(call.Args) > 1 {
			more, _ := p.strings(call.Args[1])
			m.Labels = append(m.Labels, more...)
		}
	} else {
		m = p.description(call.Args)
	}
	if strings.HasPrefix(m.Name, "refit_") {
		p.metrics[m.Name] = &m
	}
}

// description returns what a description says, if the arguments are those of one. It is of a gauge unless a sample says otherwise.
func (p *source) description(args []ast.Expr) Metric {
	m := Metric{Type: Gauge}
	m.Name, _ = text(args[0])
	if len(args) < 3 || !strings.HasPrefix(m.Name, "refit_") {
		return Metric{}
	}
	m.Help, _ = text(args[1])
	list, ok := p.strings(args[2])
	if id, isName := args[2].(*ast.Ident); !ok && (!isName || id.Name != "nil") {
		p.problems = append(p.problems, fmt.Errorf("the labels of %s are not understood", m.Name))
	}
	m.Labels = list
	return m
}

// sample takes down what a sample says of its metric: MustNewConstMetric(description, CounterValue, …).
func (p *source) sample(call *ast.CallExpr) {
	if calls(call) != "MustNewConstMetric" || len(call.Args) < 2 {
		return
	}
	if value, ok := call.Args[1].(*ast.SelectorExpr); !ok || value.Sel.Name != "CounterValue" {
		return
	}
	id, ok := call.Args[0].(*ast.Ident)
	m := p.metrics[p.descriptions[identifier(id)]]
	if !ok || m == nil {
		p.problems = append(p.problems, errors.New("of which metric a sample is, is not understood"))
		return
	}
	m.Type = Counter
}

func identifier(id *ast.Ident) string {
	if id == nil {
		return ""
	}
	return id.Name
}
