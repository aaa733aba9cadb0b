package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// The behaviours of a drain towards a pod, as Cluster API calls them.
const (
	drains = clusterv1.MachineDrainRuleDrainBehaviorDrain
	skips  = clusterv1.MachineDrainRuleDrainBehaviorSkip
	awaits = clusterv1.MachineDrainRuleDrainBehaviorWaitCompleted
)

// manner is how a drain treats a pod. Those of a lower order come first.
type manner struct {
	behavior clusterv1.MachineDrainRuleDrainBehavior
	order    int32
}

// rule is a MachineDrainRule that applies to the Machine.
type rule struct {
	name string
	manner
	pods []podSelector // none selects all
}

// podSelector selects pods by their own labels and by those of their namespaces.
type podSelector struct{ pods, namespaces labels.Selector }

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedrainrules;clusters,verbs=get;list;watch

// rules reads the MachineDrainRules that apply to the Machine, in the order in which they are asked. A rule that can't be
// understood is an error even if it may not apply, as it is for Cluster API.
func (d *Drainer) rules(ctx context.Context, machine *clusterv1.Machine) ([]rule, error) {
	var list clusterv1.MachineDrainRuleList
	if err := d.Rules.List(ctx, &list, client.InNamespace(machine.Namespace)); err != nil {
		return nil, fmt.Errorf("read the MachineDrainRules in namespace %s: %w", machine.Namespace, err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	var cluster clusterv1.Cluster
	key := types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
	if err := d.Rules.Get(ctx, key, &cluster); err != nil {
		return nil, fmt.Errorf("read Cluster %s, whose labels MachineDrainRules select: %w", key, err)
	}
	var rules []rule
	for i := range list.Items {
		r, applies, err := newRule(&list.Items[i], machine, &cluster)
		if err != nil {
			return nil, fmt.Errorf("use MachineDrainRule %s/%s: %w", machine.Namespace, list.Items[i].Name, err)
		}
		if applies {
			rules = append(rules, r)
		}
	}
	slices.SortFunc(rules, func(a, b rule) int { return strings.Compare(a.name, b.name) })
	return rules, nil
}

// newRule returns what a MachineDrainRule says of pods, and whether it applies to the Machine.
func newRule(of *clusterv1.MachineDrainRule, machine *clusterv1.Machine, cluster *clusterv1.Cluster) (rule, bool, error) {
	r := rule{name: of.Name, manner: manner{behavior: of.Spec.Drain.Behavior}}
	switch r.behavior {
	case drains:
		r.order = ptr.Deref(of.Spec.Drain.Order, 0)
	case skips, awaits:
	default:
		return rule{}, false, fmt.Errorf("its behavior %q is not known", r.behavior)
	}
	applies := len(of.Spec.Machines) == 0
	for i, s := range of.Spec.Machines {
		machines, clusters, err := both(s.Selector, s.ClusterSelector)
		if err != nil {
			return rule{}, false, fmt.Errorf("read spec.machines[%d]: %w", i, err)
		}
		applies = applies || machines.Matches(labels.Set(machine.Labels)) && clusters.Matches(labels.Set(cluster.Labels))
	}
	for i, s := range of.Spec.Pods {
		pods, namespaces, err := both(s.Selector, s.NamespaceSelector)
		if err != nil {
			return rule{}, false, fmt.Errorf("read spec.pods[%d]: %w", i, err)
		}
		r.pods = append(r.pods, podSelector{pods, namespaces})
	}
	return r, applies, nil
}

// both makes selectors. Unlike elsewhere, one that is not there selects everything.
func both(a, b *metav1.LabelSelector) (labels.Selector, labels.Selector, error) {
	first, err := metav1.LabelSelectorAsSelector(ptr.To(ptr.Deref(a, metav1.LabelSelector{})))
	if err != nil {
		return nil, nil, err
	}
	second, err := metav1.LabelSelectorAsSelector(ptr.To(ptr.Deref(b, metav1.LabelSelector{})))
	return first, second, err
}

// judge says how a drain treats pods that it may touch at all.
type judge struct {
	rules  []rule
	client client.Reader
	// namespaces are the labels of those that were read.
	namespaces map[string]labels.Set
}

// manner is what the pod's label says, else the first rule that selects the pod, else that it leaves in the first place.
func (j *judge) manner(ctx context.Context, pod *corev1.Pod) (manner, error) {
	switch strings.ToLower(pod.Labels[clusterv1.PodDrainLabel]) {
	case "skip":
		return manner{behavior: skips}, nil
	case "wait-completed", "waitcompleted":
		return manner{behavior: awaits}, nil
	}
	for i := range j.rules {
		selected, err := j.selects(ctx, &j.rules[i], pod)
		if err != nil {
			return manner{}, fmt.Errorf("compare pod %s/%s with MachineDrainRule %s: %w", pod.Namespace, pod.Name, j.rules[i].name, err)
		}
		if selected {
			return j.rules[i].manner, nil
		}
	}
	return manner{behavior: drains}, nil
}

func (j *judge) selects(ctx context.Context, r *rule, pod *corev1.Pod) (bool, error) {
	if len(r.pods) == 0 {
		return true, nil
	}
	for _, s := range r.pods {
		if !s.pods.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if s.namespaces.Empty() {
			return true, nil
		}
		namespace, err := j.namespace(ctx, pod.Namespace)
		if err != nil {
			return false, err
		}
		if s.namespaces.Matches(namespace) {
			return true, nil
		}
	}
	return false, nil
}

// namespace returns the labels of a namespace of the workload cluster. One that is not there is an error.
func (j *judge) namespace(ctx context.Context, name string) (labels.Set, error) {
	if found, ok := j.namespaces[name]; ok {
		return found, nil
	}
	var namespace corev1.Namespace
	if err := j.client.Get(ctx, types.NamespacedName{Name: name}, &namespace); err != nil {
		return nil, fmt.Errorf("read Namespace %s: %w", name, err)
	}
	j.namespaces[name] = labels.Set(namespace.Labels)
	return j.namespaces[name], nil
}
