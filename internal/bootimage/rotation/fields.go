package rotation

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// bring sets the fields of a machine's spec to what they hold of a golden image.
func bring(spec map[string]any, fields []refitv1.BootImageField, golden Golden) error {
	for _, f := range fields {
		value, err := golden.value(f.Value)
		if err != nil {
			return err
		}
		n, err := put(spec, strings.Split(f.Path, "."), value, false)
		if err != nil {
			return fmt.Errorf("the field %s can't be set: %w", f.Path, err)
		}
		if n == 0 {
			return fmt.Errorf("the field %s can't be set: none of the list's items has it", f.Path)
		}
	}
	return nil
}

// put sets a value below a part of a spec and returns in how many places. What leads to a field is made, except in items of
// lists, of which only those count that have the field: a list of disks holds others than the one that is booted from.
func put(at any, names []string, value string, inList bool) (int, error) {
	switch v := at.(type) {
	case map[string]any:
		child, has := v[names[0]]
		switch {
		case !has && inList:
			return 0, nil
		case len(names) == 1:
			alike, err := like(child, value)
			if err != nil {
				return 0, err
			}
			v[names[0]] = alike
			return 1, nil
		case child == nil:
			child = map[string]any{}
			v[names[0]] = child
		}
		return put(child, names[1:], value, inList)
	case []any:
		count := 0
		for _, item := range v {
			n, err := put(item, names, value, true)
			if err != nil {
				return 0, err
			}
			count += n
		}
		return count, nil
	default:
		return 0, fmt.Errorf("what should have %s in it is a %s", names[0], shape(at))
	}
}

// like returns a value in the type of what is there: a number stays a number.
func like(there any, value string) (any, error) {
	switch there.(type) {
	case nil, string:
		return value, nil
	case int64, float64:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, errors.New("it holds a number, and the golden image is none")
		}
		return n, nil
	default:
		return nil, fmt.Errorf("it holds a %s; name a field that is text or a number", shape(there))
	}
}

func shape(v any) string {
	switch v.(type) {
	case map[string]any:
		return "mapping"
	case []any:
		return "list"
	case string:
		return "text"
	case bool:
		return "boolean"
	case nil:
		return "null"
	default:
		return "number"
	}
}
