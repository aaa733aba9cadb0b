package check

import (
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// admission looks whether API servers ask refit about policies. They go on without a word where they can't.
func (c *Checker) admission(ctx context.Context) []Finding {
	const check = "admission"
	var list admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := c.Client.List(ctx, &list); err != nil {
		return []Finding{unknown(check, "", err)}
	}
	var all []Finding
	for i := range list.Items {
		for _, w := range list.Items[i].Webhooks {
			if slices.ContainsFunc(w.Rules, ofPolicies) {
				all = append(all, c.authority(nameOf("ValidatingWebhookConfiguration", &list.Items[i]), w.ClientConfig.CABundle))
			}
		}
	}
	if len(all) == 0 {
		all = append(all, Finding{Check: check, Level: Warning, Message: "refit is not asked about policies before they are taken: one that can't be read is closed, and its condition Ready says so",
			Do: "apply config/webhook, and start refit with --admission-port"})
	}
	return all
}

func ofPolicies(r admissionregistrationv1.RuleWithOperations) bool {
	return slices.Contains(r.APIGroups, refitv1.GroupVersion.Group) && slices.Contains(r.Resources, "changemanagementpolicies")
}
