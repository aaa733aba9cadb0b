package fieldset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	utiljson "k8s.io/apimachinery/pkg/util/json"
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

// maxOperations is how many operations a patch has at most. The library that applies patches, which is Cluster API's, searches all
// of a mapping for each field that it removes.
const maxOperations = 256

// Patch returns the JSON patch that makes the covered fields of the change, for an object whose spec is at root, for
// example /spec. Covered says of each of Fields whether it is. It is nil when nothing is covered. A list of which every field is
// covered is set to desired's list as it is, so that the order of its items is desired's, too; of a list that is covered in part,
// only that part changes. So it is with a mapping of which more than maxOperations fields differ.
func (c ObjectChange) Patch(root string, covered []bool) ([]byte, error) {
	if len(covered) != len(c.Fields) {
		return nil, errNotOfTheChange
	}
	if c.Object == Machine && c.root.operations > maxOperations {
		// Its spec can't be set as a whole: what Cluster API does not compare is not in Current.
		return nil, fmt.Errorf("more than %d fields of the machine differ", maxOperations)
	}
	s := selection{covered: make([]int, len(covered)+1)}
	for i, yes := range covered {
		s.covered[i+1] = s.covered[i]
		if yes {
			s.covered[i+1]++
		}
	}
	s.patch(root, c.root)
	if len(s.operations) == 0 {
		return nil, nil
	}
	return json.Marshal(s.operations)
}

// selection makes the operations for the fields of a change that are covered.
type selection struct {
	// covered has at i how many of the first i fields are covered.
	covered    []int
	operations []operation
}

// patch appends the operations for the covered fields at or below d.
func (s *selection) patch(pointer string, d *difference) {
	have := s.count(d)
	switch {
	case have == 0:
	case d.kind == mapping && d.current.present && d.desired.present && !d.hasEmptyName() && d.operations <= maxOperations:
		for _, c := range d.children {
			s.patch(pointer+"/"+escape(*c.element.FieldName), c)
		}
	case have == d.fields && !d.desired.present:
		s.operations = append(s.operations, operation{Op: "remove", Path: pointer})
	default:
		s.operations = append(s.operations, operation{Op: "add", Path: pointer, Value: s.merge(d).v})
	}
}

// hasEmptyName reports whether a field below d has the empty name. The library that applies patches finds none that way, so
// the mapping is set as a whole.
func (d *difference) hasEmptyName() bool {
	return slices.ContainsFunc(d.children, func(c *difference) bool { return *c.element.FieldName == "" })
}

// count returns how many of the fields at or below d are covered.
func (s *selection) count(d *difference) int { return s.covered[d.first+d.fields] - s.covered[d.first] }

// merge returns current with the covered fields of desired.
func (s *selection) merge(d *difference) value {
	switch have := s.count(d); {
	case have == 0:
		return d.current
	case have == d.fields:
		return d.desired
	case d.kind == mapping:
		return s.mergeMap(d)
	default:
		return s.mergeList(d)
	}
}

func (s *selection) mergeMap(d *difference) value {
	out := map[string]any{}
	if current, ok := d.current.v.(map[string]any); ok {
		for k, v := range current {
			out[k] = v
		}
	}
	for _, c := range d.children {
		if m := s.merge(c); m.present {
			out[*c.element.FieldName] = m.v
		} else {
			delete(out, *c.element.FieldName)
		}
	}
	return value{out, true}
}

// mergeList keeps the order of current's items; new ones follow.
func (s *selection) mergeList(d *difference) value {
	current, _ := index(d.current, d.keys)
	desired, _ := index(d.desired, d.keys)
	differ := make(map[string]*difference, len(d.children))
	for _, c := range d.children {
		differ[c.name] = c
	}
	out := []any{}
	for _, it := range union(current, desired) {
		c, ok := differ[it.name]
		if !ok {
			out = append(out, it.v)
			continue
		}
		if m := s.merge(c); m.present {
			out = append(out, m.v)
		}
	}
	return value{out, true}
}

// escaper writes a name as a step of a JSON pointer (RFC 6901).
var escaper = strings.NewReplacer("~", "~0", "/", "~1")

func escape(name string) string { return escaper.Replace(name) }

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
