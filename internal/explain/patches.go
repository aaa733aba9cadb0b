package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// patched says what the patches of a ClusterClass may change, which nobody applies here.
func patched(o *Owner, was, will *part) {
	names := unapplied(was, will)
	if was.blueprint.class == nil || will.blueprint.class == nil {
		if len(names) > 0 {
			o.Because = append(o.Because, names...)
			o.unknown("variables differ, and what they change is up to the patches of " + will.of.String() + ", which is not among the objects")
		}
		return
	}
	before, after := was.blueprint.class.Spec.Patches, will.blueprint.class.Spec.Patches
	if len(before)+len(after) == 0 {
		return
	}
	if len(names) > 0 && o.Verdict != Replace {
		o.Because = sorted(append(o.Because, names...))
		o.unknown("refit does not apply the patches of a ClusterClass, so that what comes of " + strings.Join(names, ", ") +
			", by which patches go, can't be told before Cluster API has done so: refit explain cluster/" + o.Name + " tells it then")
		return
	}
	if o.Verdict != None {
		o.Notes = append(o.Notes, "the patches of "+will.of.String()+" are not applied here: what they set in the templates may be otherwise")
	}
}

// unapplied names what differs by which the patches of a ClusterClass may go, or they themselves. Where a class is not given these are the variables.
func unapplied(was, will *part) []string {
	if was.blueprint.class == nil || will.blueprint.class == nil {
		return differing(was, will, func(string) bool { return true })
	}
	before, after := was.blueprint.class.Spec.Patches, will.blueprint.class.Spec.Patches
	if len(before)+len(after) == 0 {
		return nil
	}
	text, all := textOf(slices.Concat(before, after))
	mentioned := func(name string) bool { return all || strings.Contains(text, name) }
	names := append(differing(was, will, mentioned), defined(was, will, mentioned)...)
	if all {
		names = append(names, builtins(was.object, will.object)...)
	}
	if !reflect.DeepEqual(before, after) {
		names = append(names, "the patches of "+will.of.String())
	}
	return names
}

// anything is how a template of a patch may name whatever there is: by what Cluster API itself says of a Cluster, or by all variables as a whole.
var anything = regexp.MustCompile(`builtin|[\s({][.$][\s)}|]`)

// textOf returns the text of patches, and whether they may go by anything. What an extension does is not known.
func textOf(patches []clusterv1.ClusterClassPatch) (text string, all bool) {
	data, err := json.Marshal(patches)
	all = err != nil || anything.Match(data) || slices.ContainsFunc(patches, func(p clusterv1.ClusterClassPatch) bool { return p.External != nil })
	return string(data), all
}

// builtins names what differs of a Cluster that its patches are told.
func builtins(was, will *clusterv1.Cluster) []string {
	var out []string
	a, b := was.Spec.Topology, will.Spec.Topology
	for _, f := range []struct {
		field string
		same  bool
	}{
		{"metadata.labels", maps.Equal(was.Labels, will.Labels)},
		{"metadata.annotations", maps.Equal(told(was.Annotations), told(will.Annotations))},
		{"spec.clusterNetwork", reflect.DeepEqual(was.Spec.ClusterNetwork, will.Spec.ClusterNetwork)},
		{"spec.topology.version", a.Version == b.Version},
		{"spec.topology", a.Version != b.Version || reflect.DeepEqual(a, b)},
	} {
		if !f.same {
			out = append(out, f.field)
		}
	}
	return out
}

// told returns the annotations without the one that Cluster API keeps from patches.
func told(annotations map[string]string) map[string]string {
	out := labelled(annotations)
	delete(out, corev1.LastAppliedConfigAnnotation)
	return out
}

// defined names the variables that ClusterClasses define otherwise, such as by another default.
func defined(was, will *part, mentioned func(name string) bool) []string {
	values := map[string][2]*clusterv1.ClusterClassVariable{}
	for side, of := range []*part{was, will} {
		all := of.blueprint.class.Spec.Variables
		for i := range all {
			pair := values[all[i].Name]
			pair[side] = &all[i]
			values[all[i].Name] = pair
		}
	}
	var out []string
	for name, pair := range values {
		if mentioned(name) && !reflect.DeepEqual(pair[0], pair[1]) {
			out = append(out, fmt.Sprintf("spec.variables[name=%q] of %s", name, will.of))
		}
	}
	slices.Sort(out)
	return out
}

// differing names the variables that differ, of those that patches mention. Their values may be secret.
func differing(was, will *part, mentioned func(name string) bool) []string {
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
			if mentioned(name) && !reflect.DeepEqual(pair[0], pair[1]) {
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
