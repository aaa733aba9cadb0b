// Package kubeadmconfig reads a KubeadmConfig's spec for the updaters of its families of fields: where a field is, and
// what a new machine makes of a text that the bootstrap provider hands to it.
package kubeadmconfig

import (
	"slices"

	"github.com/capi-refit/refit/internal/fieldset"
)

// Ignition is the format in which Flatcar's Ignition gets its configuration. The other one is cloud-init's.
const Ignition = "ignition"

// Is reports whether s is the spec of a KubeadmConfig, of whatever version.
func Is(s fieldset.Spec) bool {
	return s.Group() == "bootstrap.cluster.x-k8s.io" && s.Kind == "KubeadmConfig"
}

// Change returns how the KubeadmConfig differs; ok is false when it does not, or when the machine has another bootstrap
// config.
func Change(c fieldset.Change) (change fieldset.ObjectChange, ok bool) {
	oc, ok := c.Object(fieldset.BootstrapConfig)
	return oc, ok && Is(oc.Desired)
}

// Format returns the format of the bootstrap data. Empty is cloud-init's.
func Format(s fieldset.Spec) string {
	m, _ := s.Value.(map[string]any)
	f, _ := m["format"].(string)
	return f
}

// Mapping returns the mapping to which the names of fields lead, or nil.
func Mapping(s fieldset.Spec, names ...string) map[string]any {
	m, _ := s.Value.(map[string]any)
	for _, n := range names {
		m, _ = m[n].(map[string]any)
	}
	return m
}

// List returns those items of a list of the spec that are mappings.
func List(s fieldset.Spec, name string) []map[string]any {
	entries, _ := Mapping(s)[name].([]any)
	var out []map[string]any
	for _, e := range entries {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// Location returns the names of the fields that lead to f. Items of lists have none.
func Location(f fieldset.Field) []string {
	var names []string
	for _, e := range f.Path {
		if e.FieldName != nil {
			names = append(names, *e.FieldName)
		}
	}
	return names
}

// Below reports whether f is the field to which the names lead, or a part of it.
func Below(f fieldset.Field, names ...string) bool {
	location := Location(f)
	return len(location) >= len(names) && slices.Equal(location[:len(names)], names)
}

// Item returns the value of the key of the list's item that f belongs to; ok is false when f is the list itself, or in none.
func Item(f fieldset.Field, key string) (value string, ok bool) {
	for _, e := range f.Path {
		if e.Key == nil {
			continue
		}
		for _, k := range *e.Key {
			if k.Name == key && k.Value.IsString() {
				return k.Value.AsString(), true
			}
		}
	}
	return "", false
}
