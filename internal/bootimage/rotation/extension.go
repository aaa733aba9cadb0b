package rotation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// +kubebuilder:rbac:groups=runtime.cluster.x-k8s.io,resources=extensionconfigs,verbs=list
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// hooks are the names of refit's handlers of the hooks that say whether machines stay, as refit serves them. In the status of an
// ExtensionConfig the name of the latter follows, after a dot.
var hooks = []string{"can-update-machine", "can-update-machine-set"}

// askedBy tells by which ExtensionConfig Cluster API asks refit about the machines of the policy's namespace: as a digest of it, or
// with a reason why it does not. Where nobody is to be asked Cluster API replaces machines.
func (p *pass) askedBy(ctx context.Context) (digest, unasked string, err error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(runtimev1.GroupVersion.WithKind("ExtensionConfigList"))
	switch err := p.Live.List(ctx, &list); {
	case apierrors.IsForbidden(err):
		return "", "whether it asks refit can't be told, since refit may not list ExtensionConfigs; install refit's ClusterRole again", nil
	case err != nil && !meta.IsNoMatchError(err):
		return "", "", fmt.Errorf("list ExtensionConfigs: %w", err)
	}
	unasked = "it does not ask refit, since no ExtensionConfig has refit's handlers " + strings.Join(hooks, " and ") +
		" in its status; register refit and wait until it is discovered, as docs/install.md says"
	for i := range list.Items {
		var config runtimev1.ExtensionConfig
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &config); err != nil {
			return "", "", fmt.Errorf("read ExtensionConfig %s: %w", list.Items[i].GetName(), err)
		}
		if !ofRefit(&config) {
			continue
		}
		reason, err := p.unreached(ctx, &config)
		if err != nil {
			return "", "", err
		}
		if reason == "" {
			discovered := meta.FindStatusCondition(config.Status.Conditions, runtimev1.ExtensionConfigDiscoveredCondition)
			return digestOf(config.UID, config.Generation, discovered.LastTransitionTime), "", nil
		}
		unasked = fmt.Sprintf("it does not ask refit about machines of namespace %s, since ExtensionConfig %s %s",
			p.policy.Namespace, config.Name, reason)
	}
	return "", unasked, nil
}

// ofRefit reports whether refit's handlers of the hooks were discovered by an ExtensionConfig.
func ofRefit(config *runtimev1.ExtensionConfig) bool {
	for _, name := range hooks {
		if !slices.ContainsFunc(config.Status.Handlers, func(h runtimev1.ExtensionHandler) bool { return h.Name == name+"."+config.Name }) {
			return false
		}
	}
	return true
}

// unreached returns why Cluster API's managers do not ask by an ExtensionConfig about the machines of the policy's namespace. Both
// managers: that of control planes takes none without a CA bundle, or whose discovery is not of its current generation. Empty: they do.
func (p *pass) unreached(ctx context.Context, config *runtimev1.ExtensionConfig) (string, error) {
	discovered := meta.FindStatusCondition(config.Status.Conditions, runtimev1.ExtensionConfigDiscoveredCondition)
	switch {
	case !config.DeletionTimestamp.IsZero():
		return "is being deleted; register refit again, as docs/install.md says", nil
	case discovered == nil || discovered.ObservedGeneration != config.Generation:
		return "has changed, or come, and is not discovered yet; if it stays so, see the log of Cluster API's core manager", nil
	case discovered.Status != metav1.ConditionTrue:
		return "is not discovered (" + strings.Join(strings.Fields(discovered.Message), " ") +
			"); have Cluster API's core manager reach refit, as docs/install.md says", nil
	case len(config.Spec.ClientConfig.CABundle) == 0:
		return "has no caBundle, without which the control-plane manager does not take it; set it, as docs/install.md says", nil
	}
	selector, err := metav1.LabelSelectorAsSelector(config.Spec.NamespaceSelector)
	if err != nil {
		return fmt.Sprintf("has a namespaceSelector that can't be read (%v); correct it", err), nil
	}
	if selector.Empty() {
		return "", nil
	}
	var ns corev1.Namespace
	if err := p.Live.Get(ctx, client.ObjectKey{Name: p.policy.Namespace}, &ns); apierrors.IsForbidden(err) {
		return "has a namespaceSelector, and refit may not read the Namespace; install refit's ClusterRole again", nil
	} else if err != nil {
		return "", fmt.Errorf("read Namespace %s: %w", p.policy.Namespace, err)
	}
	if !selector.Matches(labels.Set(ns.Labels)) {
		return "does not select it; widen its namespaceSelector, or label the namespace, as docs/install.md says", nil
	}
	return "", nil
}
