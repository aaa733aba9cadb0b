package fieldset

import (
	"maps"
	"reflect"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smdvalue "sigs.k8s.io/structured-merge-diff/v6/value"
)

// value is a JSON value that may be absent, which is not the same as null.
type value struct {
	v       any
	present bool
}

// kind says how a difference is made up.
type kind int

const (
	leaf kind = iota
	mapping
	keyedList
	order // a keyed list with equal items in another order
)

// difference is a node of the tree of differences: only what differs is in it.
type difference struct {
	element          fieldpath.PathElement
	kind             kind
	current, desired value
	children         []*difference
	keys             []string // of a keyedList
}

func (d *difference) operation() Operation {
	switch {
	case d.kind == order:
		return Reordered
	case !d.current.present:
		return Added
	case !d.desired.present:
		return Removed
	default:
		return Changed
	}
}

// walk calls f for each leaf below d. The path is only valid during the call.
func (d *difference) walk(p fieldpath.Path, f func(fieldpath.Path, *difference)) {
	if d.kind == leaf || d.kind == order {
		f(p, d)
		return
	}
	for _, c := range d.children {
		c.walk(append(p, c.element), f)
	}
}

type comparer struct{ keys listKeys }

// compare returns what differs between two values, or nil. The location is the names of the fields that lead to them,
// list items left out.
func (c comparer) compare(e fieldpath.PathElement, location []string, itemKeys []string, current, desired value) *difference {
	if current.present == desired.present && equal(current.v, desired.v) {
		return nil
	}
	d := &difference{element: e, current: current, desired: desired}
	switch {
	case itemKeys != nil && current.present != desired.present:
		// An item that comes or goes is one field: its parts mean nothing alone.
	case isMap(current) && isMap(desired):
		c.compareMaps(d, location)
	default:
		if keys, ok := c.keys.of(location); ok {
			c.compareLists(d, location, keys)
		}
	}
	return d
}

// isMap also takes an absent value for a map, so that a mapping that comes or goes is seen field by field.
func isMap(v value) bool {
	if !v.present {
		return true
	}
	_, ok := v.v.(map[string]any)
	return ok
}

func (c comparer) compareMaps(d *difference, location []string) {
	current, _ := d.current.v.(map[string]any)
	desired, _ := d.desired.v.(map[string]any)
	names := slices.Collect(maps.Keys(current))
	for n := range desired {
		if _, ok := current[n]; !ok {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return // an empty mapping that comes or goes is a leaf
	}
	slices.Sort(names)
	d.kind = mapping
	for _, n := range names {
		cv, cok := current[n]
		dv, dok := desired[n]
		child := c.compare(fieldpath.PathElement{FieldName: &n}, append(slices.Clip(location), n), nil, value{cv, cok}, value{dv, dok})
		if child != nil {
			d.children = append(d.children, child)
		}
	}
}

func (c comparer) compareLists(d *difference, location, keys []string) {
	current, ok1 := index(d.current, keys)
	desired, ok2 := index(d.desired, keys)
	if !ok1 || !ok2 || len(current)+len(desired) == 0 {
		return // without unique keys the list is one field
	}
	for _, it := range union(current, desired) {
		cv, cok := current.find(it.key)
		dv, dok := desired.find(it.key)
		child := c.compare(fieldpath.PathElement{Key: &it.key}, location, keys, value{cv, cok}, value{dv, dok})
		if child != nil {
			d.children = append(d.children, child)
		}
	}
	d.kind, d.keys = keyedList, keys
	if len(d.children) == 0 {
		d.kind = order
	}
}

// item is an item of a keyed list.
type item struct {
	key smdvalue.FieldList
	v   any
}

type items []item

func (l items) find(key smdvalue.FieldList) (any, bool) {
	for _, it := range l {
		if it.key.Equals(key) {
			return it.v, true
		}
	}
	return nil, false
}

// index returns the items of a list with their keys. It returns false when it is no list, or when a key is missing or is
// there twice. An absent list is an empty one.
func index(v value, keys []string) (items, bool) {
	if !v.present {
		return nil, true
	}
	list, ok := v.v.([]any)
	if !ok {
		return nil, false
	}
	out := make(items, 0, len(list))
	seen := map[string]bool{}
	for _, entry := range list {
		m, ok := entry.(map[string]any)
		if !ok {
			return nil, false
		}
		key, name, ok := keyOf(m, keys)
		if !ok || seen[name] {
			return nil, false
		}
		seen[name] = true
		out = append(out, item{key, entry})
	}
	return out, true
}

// keyOf returns the key of an item and the same as one string.
func keyOf(m map[string]any, keys []string) (smdvalue.FieldList, string, bool) {
	key := make(smdvalue.FieldList, 0, len(keys))
	name := ""
	for _, k := range keys {
		s, ok := m[k].(string)
		if !ok || s == "" {
			return nil, "", false
		}
		key = append(key, smdvalue.Field{Name: k, Value: smdvalue.NewValueInterface(s)})
		name += s + "\x00"
	}
	key.Sort()
	return key, name, true
}

// union returns the items of both lists, those of current first, each once.
func union(current, desired items) items {
	out := slices.Clone(current)
	for _, it := range desired {
		if _, ok := current.find(it.key); !ok {
			out = append(out, it)
		}
	}
	return out
}

// equal compares decoded JSON as Cluster API does: null and an empty list or mapping are not the same as nothing.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, equal)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	default:
		return reflect.DeepEqual(a, b)
	}
}
