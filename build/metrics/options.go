package metrics

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// options returns what Opts say.
func (p *source) options(lit *ast.CompositeLit) Metric {
	m := Metric{Type: typeOf(lit)}
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch key, _ := kv.Key.(*ast.Ident); identifier(key) {
		case "Name":
			m.Name, _ = text(kv.Value)
		case "Help":
			m.Help, _ = text(kv.Value)
		case "ConstLabels":
			labels, ok := keys(kv.Value)
			if !ok {
				p.problems = append(p.problems, fmt.Errorf("the labels of %s are not understood", m.Name))
			}
			m.Labels = append(m.Labels, labels...)
		}
	}
	return m
}

func typeOf(lit *ast.CompositeLit) Type {
	if of, ok := lit.Type.(*ast.SelectorExpr); ok {
		return Type(strings.ToLower(strings.TrimSuffix(of.Sel.Name, "Opts")))
	}
	return ""
}

// keys returns the keys of a map of texts.
func keys(e ast.Expr) (out []string, ok bool) {
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil, false
	}
	for _, one := range lit.Elts {
		pair, isPair := one.(*ast.KeyValueExpr)
		if !isPair {
			return nil, false
		}
		key, isText := text(pair.Key)
		if !isText {
			return nil, false
		}
		out = append(out, key)
	}
	return out, true
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

// text returns what a literal, or several that are joined, say.
func text(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		s, err := strconv.Unquote(e.Value)
		return s, err == nil
	case *ast.BinaryExpr:
		x, isX := text(e.X)
		y, isY := text(e.Y)
		return x + y, isX && isY && e.Op == token.ADD
	default:
		return "", false
	}
}
