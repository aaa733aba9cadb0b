package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/utils/ptr"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// asksAt is the path at which refit is asked about policies.
const asksAt = "/validate-change-management-policies"

const askAboutPolicies = "apply config/webhook, and start refit with --admission-port"

// admission looks whether API servers ask refit about policies. They go on without a word where they can't.
func (c *Checker) admission(ctx context.Context) []Finding {
	const check = "admission"
	var list admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := c.Client.List(ctx, &list); err != nil {
		return []Finding{unknown(check, "", err)}
	}
	var all []Finding
	missing := c.questions()
	for i := range list.Items {
		object := nameOf("ValidatingWebhookConfiguration", &list.Items[i])
		for j := range list.Items[i].Webhooks {
			w := &list.Items[i].Webhooks[j]
			if !asksAtPath(w.ClientConfig, asksAt) {
				continue // others may have a say about policies, too
			}
			all = append(all, c.authority(object, w.ClientConfig.CABundle))
			all = append(all, c.webhooksService(ctx, inquiry{check, object, "policies are taken unseen", namePort}, w.ClientConfig.Service)...)
			missing = slices.DeleteFunc(missing, func(q question) bool { return q.isAskedBy(w) })
		}
	}
	if len(all) == 0 {
		return []Finding{{Check: check, Level: Warning, Message: "refit is not asked about policies before they are taken: one that can't be read is closed, and its condition Ready says so", Do: askAboutPolicies}}
	}
	if len(missing) > 0 {
		var texts []string
		for _, q := range missing {
			texts = append(texts, q.String())
		}
		all = append(all, Finding{Check: check, Level: Warning, Message: "refit is not asked about " + some(texts) + " before they are taken", Do: askAboutPolicies})
	}
	return append(all, c.listens(ctx)...)
}

// asksAtPath reports whether somebody is asked at a path.
func asksAtPath(to admissionregistrationv1.WebhookClientConfig, path string) bool {
	if to.Service != nil {
		return ptr.Deref(to.Service.Path, "") == path
	}
	return strings.HasSuffix(ptr.Deref(to.URL, ""), path)
}

// question is what refit is to be asked about: that a policy is made or changed, in a namespace if it is in one.
type question struct {
	kind      string
	operation admission.Operation
	namespace *corev1.Namespace
}

func (q question) String() string {
	if q.namespace == nil {
		return fmt.Sprintf("%s (%s)", q.kind, q.operation)
	}
	return fmt.Sprintf("%s (%s) in namespace %s", q.kind, q.operation, q.namespace.Name)
}

// questions are those about policies of the platform, and about those in namespaces that Cluster API asks refit about.
func (c *Checker) questions() (all []question) {
	for _, operation := range []admission.Operation{admission.Create, admission.Update} {
		for _, name := range slices.Sorted(maps.Keys(c.askedIn())) {
			namespace := c.namespaces[name]
			if namespace == nil { // there are none yet
				namespace = &corev1.Namespace{}
			}
			all = append(all, question{"changemanagementpolicies", operation, namespace})
		}
		all = append(all, question{"clusterchangemanagementpolicies", operation, nil})
	}
	return all
}

// isAskedBy reports whether an API server asks it of a webhook. It does not know what matchConditions say.
func (q question) isAskedBy(w *admissionregistrationv1.ValidatingWebhook) bool {
	name := ""
	if q.namespace != nil {
		if name = q.namespace.Name; name == "" {
			name = "any"
		} else if !selects(w.NamespaceSelector, q.namespace.Labels) {
			return false
		}
	}
	attributes := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, name, "", refitv1.GroupVersion.WithResource(q.kind), "", q.operation, nil, false, nil)
	return selects(w.ObjectSelector, nil) && slices.ContainsFunc(w.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return (&rules.Matcher{Rule: r, Attr: attributes}).Matches()
	})
}

// selects reports whether a selector of a webhook, which may be missing, selects what has labels.
func selects(selector *metav1.LabelSelector, has labels.Set) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(has)
}

// listens looks whether refit listens to those who ask about policies. By default it does not.
func (c *Checker) listens(ctx context.Context) []Finding {
	const check = "admission"
	deployments, err := OwnDeployments(ctx, c.Client)
	if err != nil {
		return []Finding{unknown(check, "", err)}
	}
	var all []Finding
	for i := range deployments {
		port := "0"
		if values := valuesOf(&deployments[i], "admission-port"); len(values) > 0 {
			port = values[len(values)-1]
		}
		if port == "0" {
			all = append(all, Finding{Check: check, Level: Warning, Object: nameOf("Deployment", &deployments[i]),
				Message: "it has no --admission-port, so that nobody answers those who ask about policies, and they are taken unseen", Do: "start refit with --admission-port=9444"})
		}
	}
	return all
}
