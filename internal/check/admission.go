package check

import (
	"context"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// asksAt is the path at which refit is asked about policies.
const asksAt = "/validate-change-management-policies"

// admission looks whether API servers ask refit about policies. They go on without a word where they can't.
func (c *Checker) admission(ctx context.Context) []Finding {
	const check = "admission"
	var list admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := c.Client.List(ctx, &list); err != nil {
		return []Finding{unknown(check, "", err)}
	}
	var all []Finding
	asked := map[string]bool{}
	for i := range list.Items {
		for _, w := range list.Items[i].Webhooks {
			if !asksAtPath(w.ClientConfig, asksAt) {
				continue // others may have a say about policies, too
			}
			all = append(all, c.authority(nameOf("ValidatingWebhookConfiguration", &list.Items[i]), w.ClientConfig.CABundle))
			for _, rule := range w.Rules {
				askedAbout(rule, asked)
			}
		}
	}
	const do = "apply config/webhook, and start refit with --admission-port"
	if len(all) == 0 {
		return []Finding{{Check: check, Level: Warning, Message: "refit is not asked about policies before they are taken: one that can't be read is closed, and its condition Ready says so", Do: do}}
	}
	for _, kind := range kindsOfPolicies {
		if !asked[kind] {
			all = append(all, Finding{Check: check, Level: Warning, Message: "refit is not asked about " + kind + " before they are taken", Do: do})
		}
	}
	return append(all, c.listens(ctx)...)
}

var kindsOfPolicies = []string{"changemanagementpolicies", "clusterchangemanagementpolicies"}

// asksAtPath reports whether somebody is asked at a path.
func asksAtPath(to admissionregistrationv1.WebhookClientConfig, path string) bool {
	if to.Service != nil {
		return ptr.Deref(to.Service.Path, "") == path
	}
	return strings.HasSuffix(ptr.Deref(to.URL, ""), path)
}

// askedAbout notes the kinds of policies that a rule is about.
func askedAbout(r admissionregistrationv1.RuleWithOperations, asked map[string]bool) {
	has := func(all []string, one string) bool { return slices.Contains(all, one) || slices.Contains(all, "*") }
	for _, kind := range kindsOfPolicies {
		if has(r.APIGroups, refitv1.GroupVersion.Group) && has(r.Resources, kind) {
			asked[kind] = true
		}
	}
}

// listens looks whether refit listens to those who ask about policies. By default it does not.
func (c *Checker) listens(ctx context.Context) []Finding {
	const check = "admission"
	var list appsv1.DeploymentList
	if err := c.Client.List(ctx, &list, client.MatchingLabels{own: "refit"}); err != nil {
		return []Finding{unknown(check, "", err)}
	}
	var all []Finding
	for i := range list.Items {
		port := "0"
		for _, container := range list.Items[i].Spec.Template.Spec.Containers {
			for _, arg := range container.Args {
				if value, ok := strings.CutPrefix(arg, "--admission-port="); ok {
					port = value
				}
			}
		}
		if port == "0" {
			all = append(all, Finding{Check: check, Level: Warning, Object: nameOf("Deployment", &list.Items[i]),
				Message: "it has no --admission-port, so that nobody answers those who ask about policies, and they are taken unseen", Do: "start refit with --admission-port=9444"})
		}
	}
	return all
}
