package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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
	"github.com/capi-refit/refit/schedule"
)

// healthCheckKind is a kind of which whoever makes one, or edits it, is warned.
const healthCheckKind = "MachineHealthCheck"

// healthCheck warns of a MachineHealthCheck that selects Machines which policies forbid to replace: Cluster API replaces one that is ill, and asks nobody.
// It refuses none, since it is not known whether any will be. It says no more of Machines and policies than their names: one that is made has no UID yet, by
// which it could be told that an API server asks.
func (g *Guard) healthCheck(ctx context.Context, r admission.Request) admission.Response {
	var mhc clusterv1.MachineHealthCheck
	if err := json.Unmarshal(r.Object.Raw, &mhc); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("the object can't be read: %w", err))
	}
	v := &verdict{outcome: passed}
	if mhc.DeletionTimestamp.IsZero() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		warning, err := g.remediates(ctx, r.Namespace, &mhc)
		switch {
		case err != nil:
			ctrl.LoggerFrom(ctx).Info("Could not tell which machines a MachineHealthCheck has replaced", "object", r.Namespace+"/"+r.Name, "reason", err.Error())
			v = &verdict{outcome: unjudged, warnings: []string{"refit's guard could not tell whether this selects machines that policies forbid to replace: " + unread(err)}}
		case warning != "":
			v = &verdict{outcome: warned, warnings: []string{warning}}
		}
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
func (g *Guard) remediates(ctx context.Context, namespace string, mhc *clusterv1.MachineHealthCheck) (string, error) {
	if some, err := g.Hooks.Policies.Any(namespace); err != nil || !some {
		return "", err
	}
	selector, err := metav1.LabelSelectorAsSelector(&mhc.Spec.Selector)
	if err != nil {
		return "", nil //nolint:nilerr // Cluster API refuses it
	}
	var list clusterv1.MachineList
	if err := g.Cached.List(ctx, &list, index.InCluster(namespace, mhc.Spec.ClusterName)); err != nil {
		return "", fmt.Errorf("list the Machines of Cluster %s/%s: %w", namespace, mhc.Spec.ClusterName, err)
	}
	list.Items = slices.DeleteFunc(list.Items, func(m clusterv1.Machine) bool {
		_, skipped := m.Annotations[clusterv1.MachineSkipRemediationAnnotation]
		return skipped || !m.DeletionTimestamp.IsZero() || !selector.Matches(labels.Set(m.Labels))
	})
	slices.SortFunc(list.Items, func(a, b clusterv1.Machine) int { return strings.Compare(a.Name, b.Name) })
	return g.forbidden(ctx, list.Items)
}

// forbidden says of which of Machines that a MachineHealthCheck selects policies forbid the replacement; nothing if there are none.
func (g *Guard) forbidden(ctx context.Context, machines []clusterv1.Machine) (string, error) {
	replacing := g.Hooks.Replacing(schedule.Class{})
	kept, first, by := 0, "", ""
	for i := range machines {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		d, err := replacing.Of(ctx, &machines[i])
		if err != nil {
			return "", err
		}
		if j := slices.IndexFunc(d.Policies, func(p *changemanagement.Policy) bool { return p.Forbid }); j >= 0 {
			if kept++; kept == 1 {
				first, by = machines[i].Name, d.Policies[j].Title()
			}
		}
	}
	if kept == 0 {
		return "", nil
	}
	which := first
	if kept > 1 {
		which = fmt.Sprintf("%s and %d more", first, kept-1)
	}
	return fmt.Sprintf("of the %d Machines that this selects, policy %s forbids the replacement of %s (replacement: Forbid); Cluster API replaces those that are found ill, and asks nobody. "+
		"Leave them out of its selector, or set the annotation %s in the metadata of their owner's template, from where it comes to Machines without a rollout", len(machines), by, which, clusterv1.MachineSkipRemediationAnnotation), nil
}
