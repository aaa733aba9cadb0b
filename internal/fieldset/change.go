package fieldset

import (
	"context"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Object says which of a machine's objects a field belongs to. Templates carry the name of what is made from them.
type Object string

// The objects that Cluster API sends to in-place update hooks.
const (
	Machine               Object = "machine"
	InfrastructureMachine Object = "infrastructureMachine"
	BootstrapConfig       Object = "bootstrapConfig"
)

// Spec is the spec of one object, as decoded JSON: nil, bool, int64, float64, string, []any and map[string]any.
type Spec struct {
	APIVersion string
	// Kind is the kind of the object that belongs to a machine, also when the spec was read from a template.
	Kind string
	// Value is not to be changed. It is nil when the object has no spec.
	Value any
}

// Group returns the API group.
func (s Spec) Group() string {
	group, _, found := strings.Cut(s.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

// Operation is how a field differs.
type Operation string

// The operations.
const (
	Added   Operation = "Added"
	Removed Operation = "Removed"
	Changed Operation = "Changed"
	// Reordered is a keyed list that holds equal items in another order.
	Reordered Operation = "Reordered"
)

// Field is one difference. Fields of a Change never contain each other.
type Field struct {
	Object    Object
	Path      fieldpath.Path
	Operation Operation

	index int // among the fields of its object
}

// String returns the path as people read it, for example spec.files[path="/etc/x"].content.
func (f Field) String() string { return "spec" + f.Path.String() }

// ObjectChange is what differs between the current and the desired spec of one object.
type ObjectChange struct {
	Object           Object
	Current, Desired Spec
	Fields           []Field

	root *difference
}

// Change is what differs between the current and the desired specs of one machine, or of the machines of one template.
// Objects that do not differ are not in it.
type Change []ObjectChange

// Object returns the change of one object; ok is false when it does not differ.
func (c Change) Object(o Object) (change ObjectChange, ok bool) {
	for _, oc := range c {
		if oc.Object == o {
			return oc, true
		}
	}
	return ObjectChange{}, false
}

// Fields returns the fields of all objects.
func (c Change) Fields() []Field {
	var fields []Field
	for _, oc := range c {
		fields = append(fields, oc.Fields...)
	}
	return fields
}

// Index returns where f is in Fields; ok is false when it is no field of the change.
func (c Change) Index(f Field) (index int, ok bool) {
	for _, oc := range c {
		if oc.Object == f.Object {
			ok = f.index < len(oc.Fields) && oc.Fields[f.index].Path.Equals(f.Path)
			return index + f.index, ok
		}
		index += len(oc.Fields)
	}
	return 0, false
}

// NewObjectChange compares two specs. It returns false when they are equal.
func NewObjectChange(o Object, current, desired Spec) (ObjectChange, bool) {
	c, differs, _ := compare(context.Background(), o, current, desired, false) // without bounds nothing ends it
	return c, differs
}

// Compare is NewObjectChange for specs that anybody may have sent: an error says that more than MaxFields fields differ, or
// that the context has ended.
func Compare(ctx context.Context, o Object, current, desired Spec) (ObjectChange, bool, error) {
	return compare(ctx, o, current, desired, true)
}

func compare(ctx context.Context, o Object, current, desired Spec, bounded bool) (ObjectChange, bool, error) {
	change := ObjectChange{Object: o, Current: current, Desired: desired}
	c := comparer{ctx: ctx}
	d := c.compare(fieldpath.PathElement{}, keysOf(desired), false, optional(current.Value), optional(desired.Value))
	if d == nil || c.err != nil {
		return change, false, c.err
	}
	f := fielder{object: o, bounded: bounded}
	if err := f.list(d); err != nil {
		return change, false, err
	}
	change.root, change.Fields = d, f.fields
	return change, true, nil
}

func optional(v any) value { return value{v: v, present: v != nil} }
