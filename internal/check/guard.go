package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

const (
	// guardsAt is the path at which refit is asked about edits.
	guardsAt     = "/guard"
	checkOfGuard = "guard"
	addGuard     = "apply config/components/guard, or with Helm set guard.enabled=true: docs/guard.md"
	// enough is how many seconds an API server has to wait for refit to say what became of an edit, also where others are before it.
	enough = 10
)

// guarded are the kinds of which edits are asked about, by their resources.
var guarded = map[string]string{
	"clusters": clusterv1.GroupVersion.Group, "machinedeployments": clusterv1.GroupVersion.Group, "machinehealthchecks": clusterv1.GroupVersion.Group,
	"kubeadmcontrolplanes": controlplanev1.GroupVersion.Group,
}

// guard looks whether API servers ask refit's guard about edits, if they are to, and get an answer. They go on without a word where they can't.
func (c *Checker) guard(ctx context.Context) []Finding {
	var list admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := c.Client.List(ctx, &list); err != nil {
		return []Finding{unknown(checkOfGuard, "", err)}
	}
	serving, err := c.servesGuard(ctx)
	if err != nil {
		return []Finding{unknown(checkOfGuard, "", err)}
	}
	all, asked := c.askGuard(ctx, list.Items)
	if len(all) == 0 {
		return c.noGuard(ctx, serving)
	}
	for _, kind := range []string{"clusters", "kubeadmcontrolplanes", "machinedeployments", "machinehealthchecks"} {
		if !asked[kind] {
			all = append(all, Finding{Check: checkOfGuard, Level: Warning, Message: "the guard is not asked about edits of " + kind, Do: addGuard + " (of the version that runs)"})
		}
	}
	for name, serves := range serving {
		if !serves {
			all = append(all, Finding{Check: checkOfGuard, Level: Warning, Object: name, Message: "it has no --guard, so that nobody answers those who ask about edits, and they are stored unseen", Do: addGuard})
		}
	}
	return all
}

// askGuard looks at the webhooks by which API servers ask the guard, and returns about which kinds they do.
func (c *Checker) askGuard(ctx context.Context, configs []admissionregistrationv1.ValidatingWebhookConfiguration) (all []Finding, asked map[string]bool) {
	asked = map[string]bool{}
	for i := range configs {
		for j := range configs[i].Webhooks {
			if w := &configs[i].Webhooks[j]; asksAtPath(w.ClientConfig, guardsAt) && strings.Contains(w.Name, refitv1.GroupVersion.Group) {
				all = append(all, c.asksGuard(ctx, nameOf("ValidatingWebhookConfiguration", &configs[i]), w, asked)...)
			}
		}
	}
	return all, asked
}

// noGuard is what is found where nobody asks about edits: nothing, unless somebody means to have a guard.
func (c *Checker) noGuard(ctx context.Context, serving map[string]bool) []Finding {
	for name, serves := range serving {
		if serves {
			return []Finding{{Check: checkOfGuard, Level: Warning, Object: name, Message: "it has --guard, and no ValidatingWebhookConfiguration has an API server ask it: edits are stored unseen", Do: addGuard}}
		}
	}
	asking, err := c.asksForGuard(ctx)
	if err != nil {
		return []Finding{unknown(checkOfGuard, "", err)}
	}
	if len(asking) == 0 {
		return nil
	}
	return []Finding{{Check: checkOfGuard, Level: Warning, Do: addGuard + "; or leave the field guard out",
		Message: "no guard is installed, so that nothing comes of the field guard of " + some(asking) + ": edits that replace machines are stored, and held back only by what Cluster API asks about"}}
}

// asksForGuard returns the policies whose field guard says something else than by default.
func (c *Checker) asksForGuard(ctx context.Context) ([]string, error) {
	var own refitv1.ChangeManagementPolicyList
	var cluster refitv1.ClusterChangeManagementPolicyList
	if err := c.Client.List(ctx, &own, client.InNamespace(c.Namespace)); err != nil {
		return nil, err
	}
	if err := c.Client.List(ctx, &cluster); err != nil {
		return nil, err
	}
	says := func(g refitv1.Guard) bool { return g != "" && g != refitv1.RefuseGuard }
	var out []string
	for i := range own.Items {
		if says(own.Items[i].Spec.Guard) {
			out = append(out, nameOf("ChangeManagementPolicy", &own.Items[i]))
		}
	}
	for i := range cluster.Items {
		if says(cluster.Items[i].Spec.Guard) {
			out = append(out, nameOf("ClusterChangeManagementPolicy", &cluster.Items[i]))
		}
	}
	return out, nil
}

// asksGuard looks at one webhook by which an API server asks the guard, and notes about which kinds.
func (c *Checker) asksGuard(ctx context.Context, object string, w *admissionregistrationv1.ValidatingWebhook, asked map[string]bool) []Finding {
	all := []Finding{c.authority(object, w.ClientConfig.CABundle)}
	warn := func(message, do string) {
		all = append(all, Finding{Check: checkOfGuard, Level: Warning, Object: object, Message: message, Do: do})
	}
	for _, rule := range w.Rules {
		for kind, group := range guarded {
			asked[kind] = asked[kind] || covers(rule, group, kind, admissionregistrationv1.Update) && (kind != "machinehealthchecks" || covers(rule, group, kind, admissionregistrationv1.Create))
		}
	}
	if finding := c.service(ctx, object, w.ClientConfig.Service); finding != nil {
		all = append(all, *finding)
	}
	if ptr.Deref(w.FailurePolicy, admissionregistrationv1.Fail) != admissionregistrationv1.Ignore {
		warn("its failurePolicy is Fail: while refit does not answer, nobody scales or edits a cluster, autoscalers and Cluster API among them", "set it to Ignore: the hooks hold back what Cluster API asks about")
	}
	if seconds := ptr.Deref(w.TimeoutSeconds, enough); seconds < enough {
		warn(fmt.Sprintf("its timeoutSeconds is %d: where refit takes longer to find out, the edit is stored without a word", seconds), fmt.Sprintf("set it to %d or more", enough))
	}
	if len(all) == 1 {
		all = append(all, good(checkOfGuard, object, "it has the API server ask about edits"))
	}
	return all
}

// covers reports whether a rule is about an operation on a kind.
func covers(r admissionregistrationv1.RuleWithOperations, group, kind string, operation admissionregistrationv1.OperationType) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, one) || slices.Contains(all, "*") }
	return has(r.APIGroups, group) && has(r.Resources, kind) && (slices.Contains(r.Operations, operation) || slices.Contains(r.Operations, admissionregistrationv1.OperationAll))
}

// service looks whether the Service is there that an API server asks; nil if it is, or if it asks a URL.
func (c *Checker) service(ctx context.Context, object string, ref *admissionregistrationv1.ServiceReference) *Finding {
	if ref == nil {
		return nil
	}
	const do = "name the Service of refit's Deployment, and its port admission"
	var s corev1.Service
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	err := c.Client.Get(ctx, key, &s)
	port := ptr.Deref(ref.Port, 443)
	switch {
	case apierrors.IsNotFound(err):
		return &Finding{Check: checkOfGuard, Level: Error, Object: object, Message: fmt.Sprintf("it asks Service %s, which is not there: edits are stored unseen", key), Do: do}
	case err != nil:
		return ptr.To(unknown(checkOfGuard, object, err))
	case !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port }):
		return &Finding{Check: checkOfGuard, Level: Error, Object: object, Message: fmt.Sprintf("it asks port %d of Service %s, which has none of that number: edits are stored unseen", port, key), Do: do}
	}
	return nil
}

// servesGuard returns refit's Deployments, and whether each answers those who ask about edits.
func (c *Checker) servesGuard(ctx context.Context) (map[string]bool, error) {
	var list appsv1.DeploymentList
	if err := c.Client.List(ctx, &list, client.MatchingLabels{own: "refit"}); err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for i := range list.Items {
		serves := false
		for _, container := range list.Items[i].Spec.Template.Spec.Containers {
			serves = serves || slices.Contains(container.Args, "--guard") || slices.Contains(container.Args, "--guard=true")
		}
		out[nameOf("Deployment", &list.Items[i])] = serves
	}
	return out, nil
}
