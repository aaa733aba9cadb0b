package fieldset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// The bounds of a change that Compare looks at.
const (
	// MaxFields is how many fields of one object may differ.
	MaxFields = 100_000
	// maxPaths is how many steps the paths of all of them may have.
	maxPaths = 10 * MaxFields
)

// errTooMany is returned for a change that is beyond the bounds.
var errTooMany = fmt.Errorf("more fields differ than refit judges, which are %d of one object", MaxFields)

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
	name             string   // of an item of a keyedList

	// first is the index of the first field that is at or below the difference, and fields is how many there are.
	first, fields int
	// operations is how many operations a patch of all of it has if it sets each leaf and each list by itself.
	operations int
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

// isField reports whether the difference is a field, and not made up of some.
func (d *difference) isField() bool { return d.kind == leaf || d.kind == order }

// comparer compares the two specs of an object. It ends with its context.
type comparer struct {
	ctx   context.Context
	steps int
	err   error
}

// goOn reports whether the comparison is still wanted.
func (c *comparer) goOn() bool {
	if c.steps++; c.steps%1024 == 0 && c.err == nil {
		c.err = c.ctx.Err()
	}
	return c.err == nil
}

// compare returns what differs between two values, or nil. The keys are those of the lists at and below them; item says that they
// are an item of such a list.
func (c *comparer) compare(e fieldpath.PathElement, keys *listKeys, item bool, current, desired value) *difference {
	if !c.goOn() || !current.present && !desired.present {
		return nil
	}
	d := &difference{element: e, current: current, desired: desired}
	var differs bool
	switch {
	case item && current.present != desired.present:
		return d // an item that comes or goes is one field: its parts mean nothing alone
	case isMap(current) && isMap(desired):
		differs = c.compareMaps(d, keys)
	default:
		differs = c.compareLists(d, keys)
	}
	if !differs {
		return nil
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

// compareMaps fills in what differs between two mappings, one of which may be absent, and reports whether anything does.
func (c *comparer) compareMaps(d *difference, keys *listKeys) bool {
	current, _ := d.current.v.(map[string]any)
	desired, _ := d.desired.v.(map[string]any)
	names := slices.AppendSeq(make([]string, 0, max(len(current), len(desired))), maps.Keys(current))
	for n := range desired {
		if _, ok := current[n]; !ok {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return d.current.present != d.desired.present // an empty mapping that comes or goes is a leaf
	}
	slices.Sort(names)
	d.kind = mapping
	for _, n := range names {
		cv, cok := current[n]
		dv, dok := desired[n]
		child := c.compare(fieldpath.PathElement{FieldName: &n}, keys.field(n), false, value{cv, cok}, value{dv, dok})
		if child != nil {
			d.children = append(d.children, child)
		}
	}
	return len(d.children) > 0
}

// compareLists fills in what differs between two values that are not both mappings, item by item if they are lists with keys, and
// reports whether anything does.
func (c *comparer) compareLists(d *difference, keys *listKeys) bool {
	current, ok1 := index(d.current, keys.of())
	desired, ok2 := index(d.desired, keys.of())
	if keys.of() == nil || !ok1 || !ok2 || len(current.list)+len(desired.list) == 0 {
		return d.current.present != d.desired.present || !equal(d.current.v, d.desired.v) // without unique keys it is one field
	}
	for _, it := range union(current, desired) {
		child := c.compare(fieldpath.PathElement{Key: &it.key}, keys, true, current.find(it.name), desired.find(it.name))
		if child != nil {
			child.name = it.name
			d.children = append(d.children, child)
		}
	}
	d.kind, d.keys = keyedList, keys.of()
	if len(d.children) == 0 {
		d.kind = order
		return !current.sameOrder(desired)
	}
	return true
}

// fielder lists the fields of a tree of differences.
type fielder struct {
	object  Object
	bounded bool
	path    fieldpath.Path
	fields  []Field
	steps   int // of all paths
}

// list appends the fields that are at or below d, whose path is that of f.
func (f *fielder) list(d *difference) error {
	d.first = len(f.fields)
	if d.isField() {
		f.steps += len(f.path)
		if f.bounded && (len(f.fields) == MaxFields || f.steps > maxPaths) {
			return errTooMany
		}
		f.fields = append(f.fields, Field{Object: f.object, Path: f.path.Copy(), Operation: d.operation(), index: d.first})
	}
	for _, child := range d.children {
		f.path = append(f.path, child.element)
		if err := f.list(child); err != nil {
			return err
		}
		f.path = f.path[:len(f.path)-1]
		d.operations += child.operations
	}
	if d.kind != mapping {
		d.operations = 1
	}
	d.fields = len(f.fields) - d.first
	return nil
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
	case string:
		b, ok := b.(string)
		return ok && a == b
	default:
		return reflect.DeepEqual(a, b)
	}
}

// errNotOfTheChange is returned for a selection of fields that is not one of the change's.
var errNotOfTheChange = errors.New("the fields to cover are not those of the change")
