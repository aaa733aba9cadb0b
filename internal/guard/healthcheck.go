package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/schedule"
)

// healthCheckKind is a kind of which whoever makes one, or edits it, is warned.
const healthCheckKind = "MachineHealthCheck"

// healthCheck warns of a MachineHealthCheck that selects Machines which policies forbid to replace: Cluster API replaces one that is ill, and asks nobody.
// It refuses none, since it is not known whether any will be. It says no more of Machines and policies than their names: one that is made has no UID yet, by
// which it could be told that an API server asks.
func (g *Guard) healthCheck(ctx context.Context, r admission.Request) admission.Response {
	v := &verdict{outcome: passed}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	object := r.Namespace + "/" + r.Name
	warning, err := safely(ctx, object, func() (string, error) { return g.remediates(ctx, r) })
	switch {
	case err != nil:
		ctrl.LoggerFrom(ctx).Info("Could not tell which machines a MachineHealthCheck has replaced", "object", object, "reason", err.Error())
		v = &verdict{outcome: unjudged, warnings: []string{"refit's guard could not tell whether this selects machines that policies forbid to replace: " + unread(err)}}
	case warning != "":
		v = &verdict{outcome: warned, warnings: []string{warning}}
	}
	if r.DryRun == nil || !*r.DryRun {
		g.Metrics.count(healthCheckKind, v)
	}
	response := admission.Allowed("").WithWarnings(v.warnings...)
	if v.outcome != passed {
		response.AuditAnnotations = map[string]string{"outcome": string(v.outcome)}
	}
	return response
}

// asksAboutHealthCheck reports whether a review is about a MachineHealthCheck that is made or edited.
func asksAboutHealthCheck(r admission.Request) bool {
	return r.Kind.Kind == healthCheckKind && r.Kind.Group == clusterv1.GroupVersion.Group && (r.Operation == admissionv1.Create || r.Operation == admissionv1.Update)
}

// remediates says which Machines that policies forbid to replace a MachineHealthCheck selects; nothing if there are none.
func (g *Guard) remediates(ctx context.Context, r admission.Request) (string, error) {
	var mhc clusterv1.MachineHealthCheck
	if err := json.Unmarshal(r.Object.Raw, &mhc); err != nil {
		return "", fmt.Errorf("the object can't be read: %w", err)
	}
	if some, err := g.Hooks.Policies.Any(r.Namespace); err != nil || !some || !mhc.DeletionTimestamp.IsZero() {
		return "", err
	}
	selector, err := metav1.LabelSelectorAsSelector(&mhc.Spec.Selector)
	if err != nil {
		return "", nil //nolint:nilerr // Cluster API refuses it
	}
	var list clusterv1.MachineList
	if err := g.Cached.List(ctx, &list, index.InCluster(r.Namespace, mhc.Spec.ClusterName)); err != nil {
		return "", fmt.Errorf("list the Machines of Cluster %s/%s: %w", r.Namespace, mhc.Spec.ClusterName, err)
	}
	list.Items = slices.DeleteFunc(list.Items, func(m clusterv1.Machine) bool {
		return !m.DeletionTimestamp.IsZero() || !selector.Matches(labels.Set(m.Labels))
	})
	slices.SortFunc(list.Items, func(a, b clusterv1.Machine) int { return strings.Compare(a.Name, b.Name) })
	kept, err := g.forbidden(ctx, list.Items)
	if err != nil || len(kept) == 0 {
		return "", err
	}
	return fmt.Sprintf("of the %d Machines that this selects, %s (replacement: Forbid); Cluster API replaces those that are found ill, and asks nobody. Leave them out of its "+
		"selector, or set the annotation %s in the metadata of their owner's template, from where it comes to Machines without a rollout", len(list.Items), keepers(kept),
		clusterv1.MachineSkipRemediationAnnotation), nil
}

// keeper is a policy, and the Machines of which it forbids the replacement.
type keeper struct {
	policy string
	// first of them, and how many there are.
	first string
	count int
}

// forbidden returns the policies that forbid the replacement of Machines which nothing else keeps from it. A Machine counts once.
func (g *Guard) forbidden(ctx context.Context, machines []clusterv1.Machine) ([]*keeper, error) {
	replacing := g.Hooks.Replacing(schedule.Class{})
	var all []*keeper
	for i := range machines {
		if protection.SkipsRemediation(&machines[i]) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d, err := replacing.Of(ctx, &machines[i])
		if err != nil {
			return nil, err
		}
		forbids := slices.IndexFunc(d.Policies, func(p *changemanagement.Policy) bool { return p.Forbid })
		if forbids < 0 {
			continue
		}
		title := d.Policies[forbids].Title()
		known := slices.IndexFunc(all, func(k *keeper) bool { return k.policy == title })
		if known < 0 {
			known, all = len(all), append(all, &keeper{policy: title, first: machines[i].Name})
		}
		all[known].count++
	}
	return all, nil
}

// keepers says which policies forbid the replacement of which Machines.
func keepers(all []*keeper) string {
	said := make([]string, len(all))
	for i, k := range all {
		said[i] = "policy " + k.policy
		if i == 0 {
			said[i] += " forbids the replacement of " + k.first
		} else {
			said[i] += " that of " + k.first
		}
		if k.count > 1 {
			said[i] += fmt.Sprintf(" and %d more", k.count-1)
		}
	}
	if more := len(said) - mostNamed; more > 0 {
		return strings.Join(said[:mostNamed], ", ") + fmt.Sprintf(", and %d more policies that of others", more)
	}
	return strings.Join(said, ", ")
}
