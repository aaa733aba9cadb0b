package check

import (
	"context"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	all, asking, asked := c.askGuard(ctx, list.Items)
	if len(asking) == 0 {
		return c.noGuard(ctx, serving)
	}
	for _, kind := range slices.Sorted(maps.Keys(guarded)) {
		if !asked[kind] {
			all = append(all, Finding{Check: checkOfGuard, Level: Warning, Message: "the guard is not asked about edits of " + kind, Do: addGuard + " (of the version that runs)"})
		}
	}
	for name, serves := range serving {
		if !serves {
			all = append(all, Finding{Check: checkOfGuard, Level: Warning, Object: name, Message: "it has no --guard, so that nobody answers those who ask about edits, and they are stored unseen", Do: addGuard})
		}
	}
	if Worst(all) == Good {
		for _, object := range asking {
			all = append(all, good(checkOfGuard, object, "it has the API server ask about edits"))
		}
	}
	return all
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

// servesGuard returns refit's Deployments, and whether each answers those who ask about edits.
func (c *Checker) servesGuard(ctx context.Context) (map[string]bool, error) {
	deployments, err := OwnDeployments(ctx, c.Client)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for i := range deployments {
		serves := false
		for _, container := range deployments[i].Spec.Template.Spec.Containers {
			serves = serves || slices.Contains(container.Args, "--guard") || slices.Contains(container.Args, "--guard=true")
		}
		out[nameOf("Deployment", &deployments[i])] = serves
	}
	return out, nil
}
