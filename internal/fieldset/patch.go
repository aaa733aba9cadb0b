package fieldset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// operation is one operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// MarshalJSON leaves the value out where there is none, and keeps null where it is the value.
func (o operation) MarshalJSON() ([]byte, error) {
	if o.Op == "remove" {
		return json.Marshal(map[string]any{"op": o.Op, "path": o.Path})
	}
	type plain operation
	return json.Marshal(plain(o))
}

// Patch returns the JSON patch that makes the covered fields of the change, for an object whose spec is at root, for
// example /spec. It is nil when nothing is covered. A list of which every field is covered is set to desired's list as it
// is, so that the order of its items is desired's, too; of a list that is covered in part, only that part changes.
func (c ObjectChange) Patch(root string, covered *fieldpath.Set) ([]byte, error) {
	var ops []operation
	c.root.patch(root, nil, covered, &ops)
	if len(ops) == 0 {
		return nil, nil
	}
	return json.Marshal(ops)
}

// patch appends the operations for the covered fields below d.
func (d *difference) patch(pointer string, p fieldpath.Path, covered *fieldpath.Set, ops *[]operation) {
	have, all := d.count(p, covered)
	switch {
	case have == 0:
	case d.kind == mapping && d.current.present && d.desired.present && !d.hasEmptyName():
		for _, c := range d.children {
			c.patch(pointer+"/"+escape(*c.element.FieldName), append(p, c.element), covered, ops)
		}
	case have == all && !d.desired.present:
		*ops = append(*ops, operation{Op: "remove", Path: pointer})
	case have == all:
		*ops = append(*ops, operation{Op: "add", Path: pointer, Value: d.desired.v})
	default:
		*ops = append(*ops, operation{Op: "add", Path: pointer, Value: d.merge(p, covered).v})
	}
}

// hasEmptyName says whether a field below d has the empty name. The library that applies patches finds none that way, so
// the mapping is set as a whole.
func (d *difference) hasEmptyName() bool {
	return slices.ContainsFunc(d.children, func(c *difference) bool { return *c.element.FieldName == "" })
}

// count returns how many fields below d are covered, and how many there are.
func (d *difference) count(p fieldpath.Path, covered *fieldpath.Set) (have, all int) {
	d.walk(p, func(p fieldpath.Path, _ *difference) {
		all++
		if covered.Has(p) {
			have++
		}
	})
	return have, all
}

// merge returns current with the covered fields of desired.
func (d *difference) merge(p fieldpath.Path, covered *fieldpath.Set) value {
	have, all := d.count(p, covered)
	switch {
	case have == 0:
		return d.current
	case have == all:
		return d.desired
	case d.kind == mapping:
		return d.mergeMap(p, covered)
	default:
		return d.mergeList(p, covered)
	}
}

func (d *difference) mergeMap(p fieldpath.Path, covered *fieldpath.Set) value {
	out := map[string]any{}
	if current, ok := d.current.v.(map[string]any); ok {
		for k, v := range current {
			out[k] = v
		}
	}
	for _, c := range d.children {
		if m := c.merge(append(p, c.element), covered); m.present {
			out[*c.element.FieldName] = m.v
		} else {
			delete(out, *c.element.FieldName)
		}
	}
	return value{out, true}
}

// mergeList keeps the order of current's items; new ones follow.
func (d *difference) mergeList(p fieldpath.Path, covered *fieldpath.Set) value {
	current, _ := index(d.current, d.keys)
	desired, _ := index(d.desired, d.keys)
	out := []any{}
	for _, it := range union(current, desired) {
		i := slices.IndexFunc(d.children, func(c *difference) bool { return c.element.Key.Equals(it.key) })
		if i < 0 {
			out = append(out, it.v)
			continue
		}
		if m := d.children[i].merge(append(p, d.children[i].element), covered); m.present {
			out = append(out, m.v)
		}
	}
	return value{out, true}
}

func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// ApplyPatch applies a JSON patch to an object with the library that Cluster API applies it with.
func ApplyPatch(object, patch []byte) ([]byte, error) {
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("decode the patch: %w", err)
	}
	patched, err := decoded.Apply(object)
	if err != nil {
		return nil, fmt.Errorf("apply the patch: %w", err)
	}
	return patched, nil
}

// Decode decodes JSON as Cluster API's unstructured objects do: whole numbers are int64.
func Decode(data []byte) (any, error) {
	var v any
	if err := utiljson.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	return v, nil
}
