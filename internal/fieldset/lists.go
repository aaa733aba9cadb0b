package fieldset

import (
	"slices"
	"strconv"

	smdvalue "sigs.k8s.io/structured-merge-diff/v6/value"
)

// maxKey is the longest key of an item, in bytes: that of a path on Linux. A list with a longer one is one field, since the key
// is in the path of every field of the item.
const maxKey = 4096

// item is an item of a keyed list.
type item struct {
	key smdvalue.FieldList
	// name is the key as one string, which no other key has.
	name string
	v    any
}

// items are those of a keyed list, in its order.
type items struct {
	list   []item
	byName map[string]any
}

// find returns the item with a name.
func (l items) find(name string) value {
	v, ok := l.byName[name]
	return value{v, ok}
}

// sameOrder reports whether two lists have the same keys in the same order.
func (l items) sameOrder(other items) bool {
	return slices.EqualFunc(l.list, other.list, func(a, b item) bool { return a.name == b.name })
}

// index returns the items of a list with their keys. It returns false when it is no list, or when a key is missing, too long or
// there twice. An absent list is an empty one.
func index(v value, keys []string) (items, bool) {
	if !v.present {
		return items{}, true
	}
	list, ok := v.v.([]any)
	if !ok {
		return items{}, false
	}
	out := items{list: make([]item, 0, len(list)), byName: make(map[string]any, len(list))}
	for _, entry := range list {
		m, ok := entry.(map[string]any)
		if !ok {
			return items{}, false
		}
		key, name, ok := keyOf(m, keys)
		if !ok {
			return items{}, false
		}
		if _, twice := out.byName[name]; twice {
			return items{}, false
		}
		out.byName[name] = entry
		out.list = append(out.list, item{key: key, name: name, v: entry})
	}
	return out, true
}

// keyOf returns the key of an item and the same as one string.
func keyOf(m map[string]any, keys []string) (smdvalue.FieldList, string, bool) {
	key := make(smdvalue.FieldList, 0, len(keys))
	var name []byte
	for _, k := range keys {
		s, ok := m[k].(string)
		if !ok || s == "" || len(s) > maxKey {
			return nil, "", false
		}
		key = append(key, smdvalue.Field{Name: k, Value: smdvalue.NewValueInterface(s)})
		// With its length before it no part can be taken for that of another key.
		name = append(append(strconv.AppendInt(name, int64(len(s)), 10), ':'), s...)
	}
	key.Sort()
	return key, string(name), true
}

// union returns the items of both lists, those of current first, each once.
func union(current, desired items) []item {
	out := make([]item, 0, max(len(current.list), len(desired.list)))
	out = append(out, current.list...)
	for _, it := range desired.list {
		if !current.find(it.name).present {
			out = append(out, it)
		}
	}
	return out
}
