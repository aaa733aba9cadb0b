package kubelet

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// judge judges one field.
type judge struct {
	rules   disruption.Rules
	field   fieldset.Field
	section string
	change  fieldset.ObjectChange
}

// actions returns what the change of the field takes, or why it can't be made in place.
func (j judge) actions() ([]disruption.Action, error) {
	if !j.counts() || j.field.Operation == fieldset.Reordered {
		return none(), nil
	}
	if kubeadmconfig.Below(j.field, j.section, nodeRegistration, taints) {
		return j.taintActions()
	}
	return j.argActions()
}

// counts says whether the machine reads the section, by what it is or by what it is to be.
func (j judge) counts() bool {
	return j.section == kubeadm.Section(kubeadmconfig.Mapping(j.change.Desired)) ||
		j.section == kubeadm.Section(kubeadmconfig.Mapping(j.change.Current))
}

// items returns the items of the field's list, before and after, and whether they are of the form that is known.
func (j judge) items(list string, known ...string) (current, desired []map[string]any, err error) {
	read := func(s fieldset.Spec) []map[string]any {
		value, ok := kubeadmconfig.Mapping(s, j.section, nodeRegistration)[list]
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
	current, desired = read(j.change.Current), read(j.change.Desired)
	return current, desired, err
}

// onlyTexts says whether a mapping has texts only, all of them known.
func onlyTexts(m map[string]any, known []string) bool {
	for name, value := range m {
		if _, ok := value.(string); !ok || !slices.Contains(known, name) {
			return false
		}
	}
	return true
}

// argActions judges an argument, or all of them where the list is one field.
func (j judge) argActions() ([]disruption.Action, error) {
	current, desired, err := j.items(extraArgs, "name", "value")
	if err != nil {
		return nil, err
	}
	was, want := values(current), values(desired)
	name, single := kubeadmconfig.Item(j.field, "name")
	names := map[string]bool{name: true}
	if !single {
		names = map[string]bool{}
		for _, all := range []map[string][]string{was, want} {
			for n := range all {
				names[n] = !slices.Equal(was[n], want[n])
			}
		}
	}
	lists := [][]disruption.Action{none()}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		if !names[n] {
			continue
		}
		actions, err := j.arg(n, slices.Concat(was[n], want[n]))
		if err != nil {
			return nil, err
		}
		lists = append(lists, actions)
	}
	return disruption.Merge(lists...), nil
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

// arg judges the change of one argument, which had and is to have the values.
func (j judge) arg(name string, values []string) ([]disruption.Action, error) {
	switch name {
	case kubeadm.NodeLabels:
		return none(), j.labels()
	case kubeadm.RegisterWithTaints:
		return j.nodeTaints(nil)
	}
	for _, v := range values {
		if problem := kubeadm.Problem(node.Arg{Name: name, Value: v}); problem != "" {
			return nil, errors.New(problem)
		}
	}
	actions, err := j.rules.Domain(disruption.KubeletArguments)
	if err != nil {
		return nil, err
	}
	if kubeadm.NeedsDrain(name) {
		actions = disruption.Merge(actions, []disruption.Action{{Type: disruption.Drain}})
	}
	return actions, nil
}

func options(s fieldset.Spec) kubeadm.Options {
	spec := kubeadmconfig.Mapping(s)
	return kubeadm.OfSpec(spec, kubeadm.ControlPlane(spec))
}

// labels says why a label that has come, gone or changed can't be brought to the Node.
func (j judge) labels() error {
	was, err := options(j.change.Current).Labels()
	if err != nil {
		return fmt.Errorf("%s: %w", kubeadm.NodeLabels, err)
	}
	want, err := options(j.change.Desired).Labels()
	if err != nil {
		return fmt.Errorf("%s: %w", kubeadm.NodeLabels, err)
	}
	for _, labels := range []map[string]string{was, want} {
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			before, had := was[key]
			after, has := want[key]
			if had == has && before == after {
				continue
			}
			if problem := kubeadm.LabelProblem(key, labels[key]); problem != "" {
				return errors.New(problem)
			}
		}
	}
	return nil
}

// taintActions judges a taint, or all of them where the list is one field.
func (j judge) taintActions() ([]disruption.Action, error) {
	if _, _, err := j.items(taints, "key", "value", "effect"); err != nil {
		return nil, err
	}
	key, single := kubeadmconfig.Item(j.field, "key")
	if !single {
		return j.nodeTaints(nil)
	}
	effect, _ := kubeadmconfig.Item(j.field, "effect")
	return j.nodeTaints(&corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
}

// nodeTaints judges the taints that come, go or change: the one that is named, or all of them. The pods that do not tolerate
// a taint with the effect NoExecute are deleted without a look at PodDisruptionBudgets, so they are moved before.
func (j judge) nodeTaints(only *corev1.Taint) ([]disruption.Action, error) {
	was, err := options(j.change.Current).AllTaints()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kubeadm.RegisterWithTaints, err)
	}
	want, err := options(j.change.Desired).AllTaints()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kubeadm.RegisterWithTaints, err)
	}
	come, differ := differences(was, want, only)
	counts := false
	for _, t := range differ {
		if problem := kubeadm.TaintProblem(t); problem != "" {
			return nil, errors.New(problem)
		}
		counts = counts || !kubeadm.Startup(t)
	}
	if !counts {
		return none(), nil
	}
	actions, err := j.rules.Domain(disruption.Taints)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(come, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }) {
		actions = disruption.Merge(actions, []disruption.Action{{Type: disruption.Drain}})
	}
	return actions, nil
}

// differences returns the taints that come or get another value, and all that differ: of the one that is named, or of all.
func differences(was, want []corev1.Taint, only *corev1.Taint) (come, differ []corev1.Taint) {
	not := func(others []corev1.Taint) func(corev1.Taint) bool {
		return func(t corev1.Taint) bool { return slices.Contains(others, t) || only != nil && !t.MatchTaint(only) }
	}
	come = slices.DeleteFunc(slices.Clone(want), not(was))
	return come, append(slices.Clone(come), slices.DeleteFunc(slices.Clone(was), not(want))...)
}
