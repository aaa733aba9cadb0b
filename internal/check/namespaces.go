package check

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

const checkOfNamespaces = "extension-namespace"

// readNamespaces returns all namespaces by their names.
func (c *Checker) readNamespaces(ctx context.Context) (map[string]*corev1.Namespace, error) {
	var list corev1.NamespaceList
	if err := c.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list Namespaces: %w", err)
	}
	out := map[string]*corev1.Namespace{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out, nil
}

// inNamespaces returns the names of Clusters by their namespaces.
func inNamespaces(clusters []clusterv1.Cluster) map[string][]string {
	out := map[string][]string{}
	for i := range clusters {
		out[clusters[i].Namespace] = append(out[clusters[i].Namespace], clusters[i].Name)
	}
	return out
}

// selected looks whether an ExtensionConfig is for each namespace of Clusters, and returns those for which none is.
func (c *Checker) selected() (all []Finding, unasked map[string]bool) {
	unasked = map[string]bool{}
	if c.extensionsErr == nil && len(c.extensions) == 0 {
		return nil, unasked // which was told
	}
	for name, clusters := range inNamespaces(c.clusters) {
		object, namespace := "Namespace "+name, c.namespaces[name]
		switch {
		case c.extensionsErr != nil:
			all = append(all, unknown(checkOfNamespaces, object, c.extensionsErr))
		case c.namespacesErr != nil:
			all = append(all, unknown(checkOfNamespaces, object, c.namespacesErr))
		case namespace == nil:
			all = append(all, unknown(checkOfNamespaces, object, fmt.Errorf("namespace %s is not there", name)))
		default:
			finding := forNamespace(c.extensions, namespace, clusters)
			all, unasked[name] = append(all, finding), finding.Level != Good
		}
	}
	return all, unasked
}

// forNamespace looks whether an ExtensionConfig is for a namespace. To leave one without a label is how an operator begins, and an Error is what has a
// label and is left out all the same.
func forNamespace(extensions []runtimev1.ExtensionConfig, namespace *corev1.Namespace, clusters []string) Finding {
	object := "Namespace " + namespace.Name
	f := Finding{Check: checkOfNamespaces, Level: Error, Object: object, Message: "no ExtensionConfig is for the namespace, so that Cluster API replaces machines of its Clusters: " + some(clusters),
		Do: "widen the namespaceSelector of the ExtensionConfig, or label the namespace as it says"}
	for i := range extensions {
		switch e := &extensions[i]; {
		case isFor(e, namespace):
			return good(checkOfNamespaces, object, nameOf("ExtensionConfig", e)+" is for it")
		case lacks(e, namespace):
			f.Level, f.Do = Warning, fmt.Sprintf("nothing, if that is meant; else label it (%s) when refit check --namespace=%s has no errors", metav1.FormatLabelSelector(e.Spec.NamespaceSelector), namespace.Name)
		}
	}
	return f
}

// isFor reports whether Cluster API asks an extension about a namespace.
func isFor(e *runtimev1.ExtensionConfig, namespace *corev1.Namespace) bool {
	if e.Spec.NamespaceSelector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(e.Spec.NamespaceSelector)
	return err == nil && selector.Matches(labels.Set(namespace.Labels))
}

// lacks reports whether a namespace simply has not the label that an ExtensionConfig asks for, rather than another value of it.
func lacks(e *runtimev1.ExtensionConfig, namespace *corev1.Namespace) bool {
	selector, err := metav1.LabelSelectorAsSelector(e.Spec.NamespaceSelector)
	if err != nil {
		return false
	}
	has := labels.Set(namespace.Labels)
	requirements, _ := selector.Requirements()
	return slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return !r.Matches(has) && !has.Has(r.Key()) })
}

// optedIn looks whether there is a namespace for which an ExtensionConfig is: one that begins with those that are labelled is for none at first.
func (c *Checker) optedIn() []Finding {
	if c.extensionsErr != nil || len(c.extensions) == 0 {
		return nil // which was told
	}
	if c.namespacesErr != nil {
		return []Finding{unknown(checkOfNamespaces, "", c.namespacesErr)}
	}
	var all []Finding
	for i := range c.extensions {
		e := &c.extensions[i]
		if len(c.selectedBy(e)) == 0 {
			all = append(all, Finding{Check: checkOfNamespaces, Level: Warning, Object: nameOf("ExtensionConfig", e),
				Message: "no namespace has the labels that it asks for (" + metav1.FormatLabelSelector(e.Spec.NamespaceSelector) + "), so that Cluster API asks about no machines, and replaces them",
				Do:      "label the namespaces whose machines are to be updated in place, or widen its namespaceSelector: docs/install.md"})
		}
	}
	return all
}

// selectedBy returns the names of the namespaces for which an ExtensionConfig is.
func (c *Checker) selectedBy(e *runtimev1.ExtensionConfig) (names []string) {
	for name, namespace := range c.namespaces {
		if isFor(e, namespace) {
			names = append(names, name)
		}
	}
	return names
}
