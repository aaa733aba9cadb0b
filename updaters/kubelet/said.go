package kubelet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// said is what the two specs of a change say, read once for all of its fields.
type said struct {
	change fieldset.ObjectChange
	// arguments and taintForms are by section.
	arguments  map[string]*arguments
	taintForms map[string]error
	// readLabels and readTaints return those of the section that counts. They are nil until a field asks for them.
	readLabels func() (was, want map[string]string, err error)
	readTaints func() (*taintChange, map[taintKey]*taintChange, error)
}

// arguments are the values of each of the kubelet's arguments, in order, or why they can't be told.
type arguments struct {
	was, want map[string][]string
	err       error
}

// taintChange is what differs between taints.
type taintChange struct {
	// come are those that come or get another value, and all are those and then what goes.
	come, all []corev1.Taint
}

// taintKey tells taints of a Node apart.
type taintKey struct {
	key    string
	effect corev1.TaintEffect
}

func newSaid(change fieldset.ObjectChange) *said {
	return &said{change: change, arguments: map[string]*arguments{}, taintForms: map[string]error{}}
}

// args returns the arguments of a section.
func (s *said) args(section string) *arguments {
	known, ok := s.arguments[section]
	if !ok {
		known = &arguments{}
		var current, desired []map[string]any
		current, desired, known.err = s.items(section, extraArgs, "name", "value")
		known.was, known.want = values(current), values(desired)
		s.arguments[section] = known
	}
	return known
}

// taintsForm returns an error if the taints of a section are not of the form that is known.
func (s *said) taintsForm(section string) error {
	err, ok := s.taintForms[section]
	if !ok {
		_, _, err = s.items(section, taints, "key", "value", "effect")
		s.taintForms[section] = err
	}
	return err
}

// items returns the items of a list of a section, before and after, and whether they are of the form that is known.
func (s *said) items(section, list string, known ...string) (current, desired []map[string]any, err error) {
	read := func(spec fieldset.Spec) []map[string]any {
		value, ok := kubeadmconfig.Mapping(spec, section, nodeRegistration)[list]
		if !ok {
			return nil
		}
		entries, ok := value.([]any)
		if !ok {
			err = errForm
		}
		var out []map[string]any
		for _, e := range entries {
			m, ok := e.(map[string]any)
			if !ok || !onlyTexts(m, known) {
				err = errForm
			}
			out = append(out, m)
		}
		return out
	}
	current, desired = read(s.change.Current), read(s.change.Desired)
	return current, desired, err
}

// values returns what is said of each argument, in order.
func values(items []map[string]any) map[string][]string {
	out := map[string][]string{}
	for _, m := range items {
		name, _ := m["name"].(string)
		value, _ := m["value"].(string)
		out[name] = append(out[name], value)
	}
	return out
}

func options(s fieldset.Spec) kubeadm.Options {
	spec := kubeadmconfig.Mapping(s)
	return kubeadm.OfSpec(spec, kubeadm.ControlPlane(spec))
}

// labels returns the labels of the Node, before and after.
func (s *said) labels() (was, want map[string]string, err error) {
	if s.readLabels == nil {
		was, err := options(s.change.Current).Labels()
		var want map[string]string
		if err == nil {
			want, err = options(s.change.Desired).Labels()
		}
		s.readLabels = func() (map[string]string, map[string]string, error) { return was, want, err }
	}
	return s.readLabels()
}

// taints returns the taints of the Node that differ: the one with a key and effect or, without one (nil), all.
func (s *said) taints(only *corev1.Taint) (*taintChange, error) {
	if s.readTaints == nil {
		all, byKey, err := s.differences()
		s.readTaints = func() (*taintChange, map[taintKey]*taintChange, error) { return all, byKey, err }
	}
	all, byKey, err := s.readTaints()
	if only == nil || err != nil {
		return all, err
	}
	if one, ok := byKey[taintKey{only.Key, only.Effect}]; ok {
		return one, nil
	}
	return &taintChange{}, nil
}

// differences returns all taints of the Node that differ, and the same by key.
func (s *said) differences() (*taintChange, map[taintKey]*taintChange, error) {
	was, err := options(s.change.Current).AllTaints()
	if err != nil {
		return nil, nil, err
	}
	want, err := options(s.change.Desired).AllTaints()
	if err != nil {
		return nil, nil, err
	}
	come, gone := without(want, was), without(was, want)
	byKey := map[taintKey]*taintChange{}
	at := func(t corev1.Taint) *taintChange {
		k := taintKey{t.Key, t.Effect}
		if byKey[k] == nil {
			byKey[k] = &taintChange{}
		}
		return byKey[k]
	}
	for _, t := range come {
		c := at(t)
		c.come, c.all = append(c.come, t), append(c.all, t)
	}
	for _, t := range gone {
		c := at(t)
		c.all = append(c.all, t)
	}
	return &taintChange{come: come, all: slices.Concat(come, gone)}, byKey, nil
}

// without returns the taints that are not among others. Those in specs have no time, so that they can be compared.
func without(list, others []corev1.Taint) []corev1.Taint {
	in := make(map[corev1.Taint]bool, len(others))
	for _, t := range others {
		in[t] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(t corev1.Taint) bool { return in[t] })
}
