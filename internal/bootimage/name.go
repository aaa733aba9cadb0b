package bootimage

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

const (
	// separator stands between the fields of an image's name.
	separator = ", "
	// implicit is what the name begins with where the provider finds the image.
	implicit = "implicit: "
	// unknownImage is what is recorded where nothing tells from what a machine has booted.
	unknownImage = "unknown"
	// maxName is how long a name may be, in bytes: as long as the status of a policy takes it.
	maxName = 1024
)

// nameOf returns the image of an infrastructure machine's spec as people, annotations and statuses have it: "path=value" for each
// field, in the order of the paths. Where no field is set, the provider finds the image by the version of Kubernetes. Values that
// are addresses go without user, query and fragment, which may hold a secret: images that differ in nothing else are the same.
func nameOf(spec any, paths []string, kubernetes string) string {
	var fields []string
	for _, p := range paths {
		collect(&fields, p, spec, strings.Split(p, "."))
	}
	if len(fields) == 0 {
		return implicit + kubernetes
	}
	name := strings.Join(fields, separator)
	if len(name) <= maxName {
		return name
	}
	rest := fmt.Sprintf("… (sha256 %.8x)", sha256.Sum256([]byte(name)))
	return strings.ToValidUTF8(name[:maxName-len(rest)], "") + rest
}

// collect adds what is at the names below v, and all that is below that. It looks into the items of lists.
func collect(fields *[]string, path string, v any, names []string) {
	switch v := v.(type) {
	case nil:
	case []any:
		for _, item := range v {
			collect(fields, path, item, names)
		}
	case map[string]any:
		if len(names) > 0 {
			collect(fields, path, v[names[0]], names[1:])
			return
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			collect(fields, path+"."+name, v[name], nil)
		}
	default:
		if len(names) == 0 {
			*fields = append(*fields, path+"="+clean(fmt.Sprint(v)))
		}
	}
}

// clean returns a value without what may be a secret, and on one line.
func clean(value string) string {
	if strings.Contains(value, "://") {
		u, err := url.Parse(value)
		if err != nil || u.Opaque != "" || strings.Contains(u.Path, "://") && strings.Contains(u.Path, "@") {
			return "(an address that can't be read)" // where a password is in it can't be told
		}
		u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
		value = u.String()
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, value)
}
