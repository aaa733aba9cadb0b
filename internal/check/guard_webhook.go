package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// guarded are the kinds of which edits are asked about, by their resources, with the versions that the guard reads.
var guarded = map[string]schema.GroupVersion{
	"clusters": clusterv1.GroupVersion, "machinedeployments": clusterv1.GroupVersion, "machinehealthchecks": clusterv1.GroupVersion,
	"kubeadmcontrolplanes": controlplanev1.GroupVersion,
}

// specDiffers is the condition under which refit is asked as it is installed: others may leave edits out.
const specDiffers = "oldObject == null || object.spec != oldObject.spec"

// askGuard looks at the webhooks by which API servers ask the guard, and returns what has them, and about which kinds they ask.
func (c *Checker) askGuard(ctx context.Context, configs []admissionregistrationv1.ValidatingWebhookConfiguration) (all []Finding, asking []string, asked map[string]bool) {
	asked = map[string]bool{}
	for i := range configs {
		object := nameOf("ValidatingWebhookConfiguration", &configs[i])
		for j := range configs[i].Webhooks {
			w := &configs[i].Webhooks[j]
			if !asksAtPath(w.ClientConfig, guardsAt) || !strings.Contains(w.Name, refitv1.GroupVersion.Group) {
				continue
			}
			asking = append(asking, object)
			for kind := range guarded {
				asked[kind] = asked[kind] || asksAbout(w, kind)
			}
			all = append(all, c.authority(object, w.ClientConfig.CABundle))
			all = append(all, c.webhooksService(ctx, inquiry{checkOfGuard, object, "edits are stored unseen", namePort}, w.ClientConfig.Service)...)
			all = append(all, c.guardedNamespaces(object, w.NamespaceSelector)...)
			for _, f := range slices.Concat(leavesOut(w), howItFails(w)) {
				f.Check, f.Level, f.Object = checkOfGuard, Warning, object
				all = append(all, f)
			}
		}
	}
	return all, asking, asked
}

// asksAbout reports whether rules of a webhook are about edits of a kind, and about MachineHealthChecks that are made.
func asksAbout(w *admissionregistrationv1.ValidatingWebhook, kind string) bool {
	operations := []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
	if kind == "machinehealthchecks" {
		operations = append(operations, admissionregistrationv1.Create)
	}
	return !slices.ContainsFunc(operations, func(operation admissionregistrationv1.OperationType) bool {
		return !slices.ContainsFunc(w.Rules, func(r admissionregistrationv1.RuleWithOperations) bool { return covers(r, kind, operation) })
	})
}

// covers reports whether a rule is about an operation on a kind, as the API server goes by it.
func covers(r admissionregistrationv1.RuleWithOperations, kind string, operation admissionregistrationv1.OperationType) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, one) || slices.Contains(all, "*") }
	resource := func(of string) bool {
		name, sub, _ := strings.Cut(of, "/")
		return (name == kind || name == "*") && (sub == "" || sub == "*")
	}
	return has(r.APIGroups, guarded[kind].Group) && has(r.APIVersions, guarded[kind].Version) && slices.ContainsFunc(r.Resources, resource) &&
		ptr.Deref(r.Scope, admissionregistrationv1.AllScopes) != admissionregistrationv1.ClusterScope &&
		(slices.Contains(r.Operations, operation) || slices.Contains(r.Operations, admissionregistrationv1.OperationAll))
}

// leavesOut tells which edits a webhook may leave out of the kinds that it asks about.
func leavesOut(w *admissionregistrationv1.ValidatingWebhook) []Finding {
	var all []Finding
	if of := metav1.FormatLabelSelector(w.ObjectSelector); w.ObjectSelector != nil && of != "" && of != "<none>" {
		all = append(all, Finding{Message: "its objectSelector is " + of + ": edits of other objects are stored unseen", Do: "take it away"})
	}
	for _, m := range w.MatchConditions {
		if strings.Join(strings.Fields(m.Expression), " ") != specDiffers {
			all = append(all, Finding{Message: fmt.Sprintf("its match condition %s is none of refit's (%s): edits of which it does not hold are stored unseen", m.Name, m.Expression), Do: "take it away"})
		}
	}
	if ptr.Deref(w.MatchPolicy, admissionregistrationv1.Equivalent) == admissionregistrationv1.Exact {
		all = append(all, Finding{Message: "its matchPolicy is Exact: edits by way of another version of the API are stored unseen", Do: "set it to Equivalent"})
	}
	return all
}

// howItFails tells what becomes of edits where the guard does not answer.
func howItFails(w *admissionregistrationv1.ValidatingWebhook) []Finding {
	var all []Finding
	if ptr.Deref(w.FailurePolicy, admissionregistrationv1.Fail) != admissionregistrationv1.Ignore {
		all = append(all, Finding{
			Message: "its failurePolicy is Fail: while refit does not answer, nobody scales or edits a cluster, autoscalers and Cluster API among them",
			Do:      "set it to Ignore: the hooks hold back what Cluster API asks about",
		})
	}
	if seconds := ptr.Deref(w.TimeoutSeconds, enough); seconds < enough {
		all = append(all, Finding{
			Message: fmt.Sprintf("its timeoutSeconds is %d: where refit takes longer to find out, the edit is stored without a word", seconds),
			Do:      fmt.Sprintf("set it to %d or more", enough),
		})
	}
	return all
}

// notSelected returns the namespaces with Clusters that a selector does not select.
func (c *Checker) notSelected(by labels.Selector) (names []string) {
	for i := range c.clusters {
		name := c.clusters[i].Namespace
		if n := c.namespaces[name]; n != nil && !by.Matches(labels.Set(n.Labels)) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// guardedNamespaces looks whether the guard is asked about the namespaces that have Clusters.
func (c *Checker) guardedNamespaces(object string, of *metav1.LabelSelector) []Finding {
	selector, err := metav1.LabelSelectorAsSelector(of)
	if of == nil || err == nil && selector.Empty() {
		return nil
	}
	if err = errors.Join(err, c.clustersErr, c.namespacesErr); err != nil {
		return []Finding{unknown(checkOfGuard, object, err)}
	}
	without := c.notSelected(selector)
	if len(without) == 0 && len(c.clusters) > 0 {
		return nil
	}
	finding := Finding{Check: checkOfGuard, Level: Warning, Object: object, Do: "label the namespaces, or take its namespaceSelector away",
		Message: fmt.Sprintf("its namespaceSelector is %s: edits in other namespaces are stored unseen", metav1.FormatLabelSelector(of))}
	if len(without) > 0 {
		finding.Message += ", as in " + some(without)
	}
	return []Finding{finding}
}
