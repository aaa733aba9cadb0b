package explain

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// patched says what the patches of a ClusterClass may change, which nobody applies here.
func patched(o *Owner, was, will *part) {
	if was.blueprint.class == nil || will.blueprint.class == nil {
		if names := differing(was, will); len(names) > 0 {
			o.Because = append(o.Because, names...)
			o.unknown("variables differ, and what they change is up to the patches of " + will.of.String() + ", which is not among the objects")
		}
		return
	}
	before, after := was.blueprint.class.Spec.Patches, will.blueprint.class.Spec.Patches
	if len(before)+len(after) == 0 {
		return
	}
	names := differing(was, will)
	if was.version != will.version && byVersion(after) {
		names = append(names, "spec.topology.version, by which patches go,")
	}
	if !reflect.DeepEqual(before, after) {
		names = append(names, "the patches of "+will.of.String())
	}
	if len(names) > 0 && o.Verdict != Replace {
		o.Because = append(o.Because, differing(was, will)...)
		o.unknown("refit does not apply the patches of a ClusterClass, so that what comes of " + strings.Join(names, ", ") +
			" can't be told before Cluster API has done so: refit explain cluster/" + o.Name + " tells it then")
		return
	}
	if o.Verdict != None {
		o.Notes = append(o.Notes, "the patches of "+will.of.String()+" are not applied here: what they set in the templates may be otherwise")
	}
}

// builtinVersion is how patches name the version of Kubernetes.
var builtinVersion = regexp.MustCompile(`builtin[\w.]*\.version`)

// byVersion reports whether patches may go by the version of Kubernetes. What an extension does is not known.
func byVersion(patches []clusterv1.ClusterClassPatch) bool {
	text, err := json.Marshal(patches)
	return err != nil || builtinVersion.Match(text) || slices.ContainsFunc(patches, func(p clusterv1.ClusterClassPatch) bool { return p.External != nil })
}

// differing names the variables that differ. Their values may be secret.
func differing(was, will *part) []string {
	var out []string
	for _, v := range []struct {
		field         string
		before, after []clusterv1.ClusterVariable
	}{
		{"spec.topology.variables", was.object.Spec.Topology.Variables, will.object.Spec.Topology.Variables},
		{will.field + ".variables.overrides", was.variables, will.variables},
	} {
		values := map[string][2]*clusterv1.ClusterVariable{}
		for i := range v.before {
			values[v.before[i].Name] = [2]*clusterv1.ClusterVariable{&v.before[i]}
		}
		for i := range v.after {
			pair := values[v.after[i].Name]
			pair[1] = &v.after[i]
			values[v.after[i].Name] = pair
		}
		for name, pair := range values {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				out = append(out, fmt.Sprintf("%s[name=%q]", v.field, name))
			}
		}
	}
	slices.Sort(out)
	return out
}

// classesInUse returns the ClusterClasses by which the Clusters that are given are made.
func (s sides) classesInUse() map[Key]bool {
	used := map[Key]bool{}
	for _, set := range []*Set{s.from, s.to} {
		for _, key := range set.Keys() {
			if key.GroupKind != clusters {
				continue
			}
			if b, err := s.blueprint(set, key); err == nil && b != nil {
				used[b.of] = true
			}
		}
	}
	return used
}

// classesAlone says which ClusterClasses differ of which no Cluster is given.
func (s sides) classesAlone() []string {
	used := s.classesInUse()
	var notes []string
	for _, key := range union(s.from, s.to) {
		a, b := s.from.Get(key), s.to.Get(key)
		if key.GroupKind == classes && !used[key] && (a == nil || b == nil || !reflect.DeepEqual(a.Object["spec"], b.Object["spec"])) {
			notes = append(notes, fmt.Sprintf("%s differs, and no Cluster that is given is made by it: add the Cluster, and its machines are told", key))
		}
	}
	return notes
}
