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
	said    *said
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

// counts reports whether the machine reads the section, by what it is or by what it is to be.
func (j judge) counts() bool {
	return j.section == kubeadm.Section(kubeadmconfig.Mapping(j.change.Desired)) ||
		j.section == kubeadm.Section(kubeadmconfig.Mapping(j.change.Current))
}

// onlyTexts reports whether a mapping has texts only, all of them known.
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
	args := j.said.args(j.section)
	if args.err != nil {
		return nil, args.err
	}
	was, want := args.was, args.want
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

// labels says why a label that has come, gone or changed can't be brought to the Node.
func (j judge) labels() error {
	was, want, err := j.said.labels()
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
	if err := j.said.taintsForm(j.section); err != nil {
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
	differ, err := j.said.taints(only)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kubeadm.RegisterWithTaints, err)
	}
	counts := false
	for _, t := range differ.all {
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
	if slices.ContainsFunc(differ.come, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }) {
		actions = disruption.Merge(actions, []disruption.Action{{Type: disruption.Drain}})
	}
	return actions, nil
}
