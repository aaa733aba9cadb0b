package declared

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// split returns the names of a dotted path, and nil if it is none.
func split(path string) []string {
	names := strings.Split(path, ".")
	if slices.Contains(names, "") {
		return nil
	}
	return names
}

// within reports whether a location is at ancestor or below it. Nothing is within an empty one.
func within(location, ancestor []string) bool {
	return len(ancestor) > 0 && len(location) >= len(ancestor) && slices.Equal(location[:len(ancestor)], ancestor)
}

// below reports whether a location is at one of the paths or below it.
func below(location []string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return within(location, split(p)) })
}

// differences are the locations of what differs between two values at a location.
func differences(at []string, current, desired any) [][]string {
	if reflect.DeepEqual(current, desired) {
		return nil
	}
	switch c := current.(type) {
	case map[string]any:
		if d, ok := desired.(map[string]any); ok && len(c)+len(d) > 0 {
			return ofMaps(at, c, d)
		}
	case []any:
		if d, ok := desired.([]any); ok && len(c) == len(d) {
			var out [][]string
			for i := range c {
				out = append(out, differences(at, c[i], d[i])...)
			}
			return out
		}
	}
	return [][]string{at}
}

// ofMaps descends into what both have. What only one has is a difference as a whole.
func ofMaps(at []string, current, desired map[string]any) [][]string {
	names := slices.Collect(maps.Keys(current))
	for name := range desired {
		if _, both := current[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out [][]string
	for _, name := range names {
		c, inCurrent := current[name]
		d, inDesired := desired[name]
		location := append(slices.Clone(at), name)
		if inCurrent != inDesired {
			out = append(out, location)
			continue
		}
		out = append(out, differences(location, c, d)...)
	}
	return out
}
