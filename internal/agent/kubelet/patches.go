package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
)

// patches are those of the kubelet's configuration in a directory, by the names of their files. kubeadm applies them in the order of these.
type patches map[string][]byte

// fieldArguments are the arguments that stand for fields of the configuration in what the kubelet's managers of resources don't survive, see
// managers and placing.
var fieldArguments = map[string]string{
	"cpuManagerPolicy": "cpu-manager-policy", "cpuManagerPolicyOptions": "cpu-manager-policy-options", "reservedSystemCPUs": "reserved-cpus",
	"kubeReserved": "kube-reserved", "systemReserved": "system-reserved", "memoryManagerPolicy": "memory-manager-policy",
	"reservedMemory": "reserved-memory", "evictionHard": "eviction-hard", "topologyManagerPolicy": "topology-manager-policy",
	"topologyManagerPolicyOptions": "topology-manager-policy-options", "topologyManagerScope": "topology-manager-scope",
}

// readPatches returns those of a directory on the node, as they are or as they will be with the files that a plan changes.
func readPatches(r host.Root, dir string, planned map[string][]byte) (patches, error) {
	if dir == "" {
		return patches{}, nil
	}
	all, err := patchesIn(r, dir)
	if err != nil {
		return nil, err
	}
	for p, content := range planned {
		switch {
		case !disruption.IsKubeletPatch(dir, p):
		case content == nil:
			delete(all, path.Base(p))
		default:
			all[path.Base(p)] = content
		}
	}
	return all, nil
}

func patchesIn(r host.Root, dir string) (patches, error) {
	all := patches{}
	entries, err := r.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		if e.IsDir() || !disruption.IsKubeletPatch(dir, p) {
			continue
		}
		data, state, err := r.ReadFile(p)
		if err != nil {
			return nil, err
		}
		if state.Exists {
			all[e.Name()] = data
		}
	}
	return all, nil
}

// same reports whether two directories have the same patches.
func (p patches) same(other patches) bool {
	return maps.EqualFunc(p, other, bytes.Equal)
}

// arguments returns those that stand for the fields that the patches name.
func (p patches) arguments() []string {
	var names []string
	for _, text := range p {
		for field, name := range fieldArguments {
			if bytes.Contains(text, []byte(field)) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// missing returns the fields that the patches set and that a configuration does not have so. Lists are not looked at, nor is anything where
// there are patches of the type json, which are operations.
func (p patches) missing(config []byte) ([]string, error) {
	var is map[string]any
	if err := yaml.Unmarshal(config, &is); err != nil || is["kind"] != "KubeletConfiguration" {
		return nil, fmt.Errorf("%s is not the configuration of a kubelet", ConfigFile)
	}
	want := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if strings.Contains(name, "+json.") {
			return nil, nil
		}
		var patch map[string]any
		if err := yaml.Unmarshal(p[name], &patch); err != nil {
			return nil, fmt.Errorf("the patch %s is not YAML", name)
		}
		overlay(want, patch)
	}
	return lacking("", want, is), nil
}

// overlay puts what a patch says over what others before it say.
func overlay(under, patch map[string]any) {
	for name, value := range patch {
		inner, isMap := value.(map[string]any)
		below, wasMap := under[name].(map[string]any)
		if isMap && wasMap {
			overlay(below, inner)
			continue
		}
		under[name] = value
	}
}

// lacking returns the paths of the fields below at that differ.
func lacking(at string, want, is map[string]any) (fields []string) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if strings.HasPrefix(name, "$") { // a directive of a strategic merge patch
			continue
		}
		field := strings.TrimPrefix(at+"."+name, ".")
		switch value := want[name].(type) {
		case map[string]any:
			inner, _ := is[name].(map[string]any)
			fields = append(fields, lacking(field, value, inner)...)
		case []any:
		default:
			if !alike(value, is[name]) {
				fields = append(fields, field)
			}
		}
	}
	return fields
}

// alike reports whether a value is what a patch says, as the kubelet's types write it: durations in their own form, and of some fields no
// zero values.
func alike(want, is any) bool {
	if is == nil {
		return want == nil || reflect.ValueOf(want).IsZero()
	}
	if reflect.DeepEqual(want, is) {
		return true
	}
	_, text := want.(string)
	_, other := is.(string)
	x, okX := duration(want)
	y, okY := duration(is)
	return okX && okY && x == y && (text || other) // two numbers that differ do
}

// duration reads one, as text or, as some fields have it, as a number of nanoseconds beside a text.
func duration(v any) (time.Duration, bool) {
	switch v := v.(type) {
	case string:
		d, err := time.ParseDuration(v)
		return d, err == nil
	case float64:
		return time.Duration(v), true
	default:
		return 0, false
	}
}
