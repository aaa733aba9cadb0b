package nodeobject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/kubeadm"
)

// Edit is what is edited on a Node. It names labels and taints, and shows no values.
type Edit struct {
	node *corev1.Node
	// Done says what is edited, and Notes what was left.
	Done, Notes []string
	// shows are checks of what is written, by what they are about.
	shows map[string]func(*corev1.Node) bool
	// Records are digests, of at most two records, that have to be kept before the Node is written: of the record that it gets and of the
	// one that it has. Nil: it gets none.
	Records []string
	// Conflict means that others have changed the same.
	Conflict bool
	// taintsChanged means that taints are edited, and evicts that one comes that has pods go at once.
	taintsChanged, evicts bool
}

// say records an edit, and how to see that it is there.
func (e *Edit) say(verb, what string, shown func(*corev1.Node) bool) {
	e.Done = append(e.Done, verb+" "+what)
	if e.shows == nil {
		e.shows = map[string]func(*corev1.Node) bool{}
	}
	e.shows[what] = shown
}

// Missing returns what a Node does not show of the edit.
func (e *Edit) Missing(n *corev1.Node) []string {
	var out []string
	for _, what := range slices.Sorted(maps.Keys(e.shows)) {
		if !e.shows[what](n) {
			out = append(out, what)
		}
	}
	return out
}

func (e *Edit) leave(what, why string) {
	e.Notes = append(e.Notes, fmt.Sprintf("%s of Node %s was left as it is: %s", what, e.node.Name, why))
}

// Why something on a Node is left.
const (
	byOthers    = "it was changed there and not in the specs"
	asOthers    = "the specs no longer have it, and others have given it another value"
	byMachine   = "Cluster API brings it from the Machine"
	fromMachine = "Cluster API brings one of the same name from the Machine"
)

// value is what a label or a taint has, if it is there.
type value struct {
	text  string
	there bool
}

// sets reports whether something that is wanted has to be written. known means that was can be relied on.
func (e *Edit) sets(what, want string, is, was value, known, machines bool) bool {
	switch {
	case is.there && is.text == want:
		return false
	case machines:
		e.leave(what, byMachine)
		return false
	case was.there && was.text == want:
		e.leave(what, byOthers)
		return false
	}
	e.Conflict = e.Conflict || known && is.there && is != was
	return true
}

// removes reports whether something that is no longer wanted has to be taken away.
func (e *Edit) removes(what string, is, was value, machines bool) bool {
	switch {
	case !is.there:
		return false
	case machines:
		e.leave(what, fromMachine)
		return false
	case is != was:
		e.leave(what, asOthers)
		return false
	default:
		return true
	}
}

func valueOf(labels map[string]string, key string) value {
	text, there := labels[key]
	return value{text, there}
}

// labels edits labels. A nil base is not known.
func (e *Edit) labels(base, want map[string]string) {
	machines := listed(e.node, clusterv1.LabelsFromMachineAnnotation)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		text, what := want[key], "label "+key
		if !e.sets(what, text, valueOf(e.node.Labels, key), valueOf(base, key), base != nil, slices.Contains(machines, key)) {
			continue
		}
		if e.node.Labels == nil {
			e.node.Labels = map[string]string{}
		}
		e.node.Labels[key] = text
		e.say("set", what, func(n *corev1.Node) bool { return valueOf(n.Labels, key) == value{text, true} })
	}
	for _, key := range slices.Sorted(maps.Keys(base)) {
		what := "label " + key
		if _, wanted := want[key]; wanted ||
			!e.removes(what, valueOf(e.node.Labels, key), valueOf(base, key), slices.Contains(machines, key)) {
			continue
		}
		delete(e.node.Labels, key)
		e.say("remove", what, func(n *corev1.Node) bool { return !valueOf(n.Labels, key).there })
	}
}

func taintValue(taints []corev1.Taint, t corev1.Taint) value {
	if found := find(taints, t); found != nil {
		return value{found.Value, true}
	}
	return value{}
}

// taints edits taints. A nil base is not known.
func (e *Edit) taints(base, want []corev1.Taint) {
	machines := listed(e.node, clusterv1.TaintsFromMachineAnnotation)
	for _, t := range want {
		if base == nil && t.Key == kubeadm.ControlPlaneTaint && t.Effect == corev1.TaintEffectNoSchedule {
			continue // the specs need not name it, and whoever lets pods onto a control plane takes it away
		}
		is := taintValue(e.node.Spec.Taints, t)
		if e.sets("taint "+nameOf(t), t.Value, is, taintValue(base, t), base != nil, slices.Contains(machines, nameOf(t))) {
			e.setTaint(t)
		}
	}
	for _, t := range base {
		is := taintValue(e.node.Spec.Taints, t)
		if find(want, t) == nil && e.removes("taint "+nameOf(t), is, value{t.Value, true}, slices.Contains(machines, nameOf(t))) {
			e.removeTaint(t)
		}
	}
}

func (e *Edit) setTaint(t corev1.Taint) {
	if is := find(e.node.Spec.Taints, t); is != nil {
		is.Value = t.Value
	} else {
		e.node.Spec.Taints = append(e.node.Spec.Taints, t)
	}
	e.taintsChanged = true
	e.evicts = e.evicts || t.Effect == corev1.TaintEffectNoExecute
	e.say("set", "taint "+nameOf(t), func(n *corev1.Node) bool { return taintValue(n.Spec.Taints, t) == value{t.Value, true} })
}

func (e *Edit) removeTaint(t corev1.Taint) {
	e.node.Spec.Taints = slices.DeleteFunc(e.node.Spec.Taints, func(other corev1.Taint) bool { return other.MatchTaint(&t) })
	e.taintsChanged = true
	e.say("remove", "taint "+nameOf(t), func(n *corev1.Node) bool { return find(n.Spec.Taints, t) == nil })
}

// find returns the taint of the same key and effect.
func find(taints []corev1.Taint, t corev1.Taint) *corev1.Taint {
	for i := range taints {
		if taints[i].MatchTaint(&t) {
			return &taints[i]
		}
	}
	return nil
}

// nameOf is what tells a taint from others, in the form in which Cluster API notes its own.
func nameOf(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// listed returns what an annotation lists: the labels or taints that Cluster API has brought from the Machine.
func listed(n *corev1.Node, annotation string) []string {
	return strings.Split(n.Annotations[annotation], ",")
}
