// Package fields lists every field of a KubeadmConfigSpec, as Cluster API's types have them, with changes of it. Tests ask
// with them whether each field has a verdict; so a field that Cluster API adds can't be forgotten.
package fields

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	"github.com/capi-refit/refit/internal/fieldset"
)

// Field is a field that contains no others.
type Field struct {
	// Path is the names of the fields that lead to it. Items of a list are [], and those of a mapping with any keys *, for
	// example users[].sshAuthorizedKeys[] or clusterConfiguration.featureGates.*.
	Path string
	// Changes are: it comes, it changes, it goes.
	Changes []Change
}

// Change is one of a field, in a spec that has no more than it takes to have the field.
type Change struct {
	Operation        fieldset.Operation
	Current, Desired map[string]any
}

// ObjectChange compares the specs.
func (c Change) ObjectChange() (fieldset.ObjectChange, bool) {
	spec := func(v map[string]any) fieldset.Spec {
		return fieldset.Spec{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "KubeadmConfig", Value: v}
	}
	return fieldset.NewObjectChange(fieldset.BootstrapConfig, spec(c.Current), spec(c.Desired))
}

// Machine is what the KubeadmConfig is for.
type Machine string

// The machines.
const (
	ControlPlane Machine = "control plane"
	Worker       Machine = "worker"
)

// Of returns the change as it is for a machine: Cluster API compares the KubeadmConfigs of all of them as of machines that
// have joined their cluster. Where nothing would differ then, it is the change as it is.
func (c Change) Of(m Machine) Change {
	join := map[string]any{}
	if m == ControlPlane {
		join["controlPlane"] = map[string]any{}
	}
	base := map[string]any{"joinConfiguration": join}
	of := Change{Operation: c.Operation, Current: merge(base, c.Current), Desired: merge(base, c.Desired)}
	if _, differs := of.ObjectChange(); !differs {
		return c
	}
	return of
}

// merge returns a with the fields of b.
func merge(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	for name, v := range b {
		above, ok1 := out[name].(map[string]any)
		below, ok2 := v.(map[string]any)
		if ok1 && ok2 {
			v = merge(above, below)
		}
		out[name] = v
	}
	return out
}

// All returns every field, in the order of the types. It panics when a field has a type that it does not know how to change.
func All() []Field {
	w := &walker{}
	w.walk(reflect.TypeFor[bootstrapv1.KubeadmConfigSpec](), nil)
	return w.fields
}

// whole are types of Kubernetes that are one value each, though they are made of fields.
var whole = []reflect.Type{
	reflect.TypeFor[metav1.Time](), reflect.TypeFor[corev1.EnvVarSource](), reflect.TypeFor[bootstrapv1.BootstrapTokenString](),
}

type walker struct{ fields []Field }

// Steps of a path that are no names.
const (
	item   = "[]"
	anyKey = "*"
)

func (w *walker) walk(t reflect.Type, path []string) {
	if isLeaf(t) {
		w.leaf(t, path)
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		if !isLeaf(t.Elem()) {
			w.presence(t.Elem(), path)
		}
		w.walk(t.Elem(), path)
	case reflect.Struct:
		for f := range t.Fields() {
			w.field(f, path)
		}
	case reflect.Slice:
		w.walk(t.Elem(), append(slices.Clip(path), item))
	default: // a map
		w.walk(t.Elem(), append(slices.Clip(path), anyKey))
	}
}

// isLeaf reports whether a type has no fields, items or keys that count by themselves.
func isLeaf(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Map:
		return false
	case reflect.Struct:
		return slices.Contains(whole, t)
	case reflect.Slice:
		return t.Elem().Kind() == reflect.Uint8
	default:
		return true
	}
}

func (w *walker) field(f reflect.StructField, path []string) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case strings.Contains(options, "inline"):
		w.walk(f.Type, path)
	case name != "" && name != "-" && f.IsExported():
		w.walk(f.Type, append(slices.Clip(path), name))
	}
}

// presence lists an optional field that can be there without having anything in it, which is not the same as nothing.
func (w *walker) presence(t reflect.Type, path []string) {
	var empty any = map[string]any{}
	if t.Kind() == reflect.Slice {
		empty = []any{}
	}
	w.fields = append(w.fields, Field{Path: join(path), Changes: []Change{
		{fieldset.Added, without(path), with(path, empty)},
		{fieldset.Removed, with(path, empty), without(path)},
	}})
}

func (w *walker) leaf(t reflect.Type, path []string) {
	one, other := values(t, join(path))
	w.fields = append(w.fields, Field{Path: join(path), Changes: []Change{
		{fieldset.Added, without(path), with(path, one)},
		{fieldset.Changed, with(path, one), with(path, other)},
		{fieldset.Removed, with(path, one), without(path)},
	}})
}

// join returns a path as people read it.
func join(path []string) string {
	return strings.ReplaceAll(strings.Join(path, "."), "."+item, item)
}

// values returns two values that a field can have.
func values(t reflect.Type, path string) (one, other any) {
	for _, s := range samples {
		if strings.HasSuffix(path, s.suffix) {
			return s.one, s.other
		}
	}
	switch t.Kind() {
	case reflect.String:
		return "a", "b"
	case reflect.Bool:
		return true, false
	case reflect.Int32, reflect.Int64:
		return int64(1), int64(2)
	case reflect.Slice: // of bytes
		return "YQ==", "Yg=="
	default:
		panic(fmt.Sprintf("fields: no values of %s, the type of %s", t, path))
	}
}

// with returns a spec in which the field has the value, and what has to be beside it.
func with(path []string, value any) map[string]any {
	m, _ := build(nil, path, value).(map[string]any)
	return m
}

func build(above, rest []string, value any) any {
	if len(rest) == 0 {
		return value
	}
	below := build(append(slices.Clip(above), rest[0]), rest[1:], value)
	switch rest[0] {
	case item:
		return []any{below}
	case anyKey:
		return map[string]any{cmp.Or(keys[above[len(above)-1]], "Any"): below}
	default:
		m := beside(above)
		m[rest[0]] = below
		return m
	}
}

// without returns a spec in which the field is not there, nor what can't be without it.
func without(path []string) map[string]any {
	for n := len(path) - 1; n > 0; n-- {
		if m := beside(path[:n]); len(m) > 0 && m[path[n]] == nil {
			return with(path[:n], m)
		}
	}
	return map[string]any{}
}
