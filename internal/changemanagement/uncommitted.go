package changemanagement

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=pendingchanges,verbs=get;list;watch

// uncommitted is what waits under a policy and has no MachineUpdate, as PendingChanges have it: replacements, what is refused, and upgrades.
type uncommitted struct {
	title, namespace, cluster string // of the policy; of the Machines
	role                      refitv1.Role
	machines, held            int
	// classes are those of the held ones, where that has a say.
	classes []schedule.Class
}

// readUncommitted reads what waits in a namespace, or in all if it is empty. What a PendingChange of a Cluster says is said by those of its parts.
func readUncommitted(ctx context.Context, c client.Reader, namespace string) ([]uncommitted, error) {
	var list refitv1.PendingChangeList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list PendingChanges: %w", err)
	}
	var out []uncommitted
	for i := range list.Items {
		pending := &list.Items[i]
		if pending.Spec.Role == "" {
			continue
		}
		for _, p := range pending.Status.Policies {
			u := uncommitted{
				title: p.Name, namespace: pending.Namespace, cluster: pending.Spec.Cluster, role: pending.Spec.Role,
				machines: int(p.Machines), held: int(p.Held),
			}
			for _, c := range p.Classes {
				u.classes = append(u.classes, schedule.Class{Kinds: c.Kinds, Disruption: c.Disruption})
			}
			out = append(out, u)
		}
	}
	return out, nil
}

// addUncommitted adds what has no MachineUpdate to what the policies say, and has them open when they do for that.
func (o *seen) addUncommitted(waits []uncommitted, all map[string][]*Policy) {
	for _, policies := range all {
		for _, p := range policies {
			o.addUncommittedOf(p, waits)
		}
	}
}

func (o *seen) addUncommittedOf(p *Policy, waits []uncommitted) {
	for _, u := range waits {
		g := o.groups[groupKey{p.NamespacedName, u.namespace, u.cluster, u.role}]
		switch {
		case u.title != p.Title() || g == nil: // its Machines are gone meanwhile
		case u.held > 0:
			g.pending = pendingBlocked
			for _, c := range u.classes {
				g.wait(o.now, p, Change{Class: c})
			}
		case u.machines > 0:
			g.pending = max(g.pending, pendingInitiating)
		}
	}
}

// countUncommitted adds the Machines that a policy selects whose change is held back without a MachineUpdate.
func (s *Status) countUncommitted(ctx context.Context, p *Policy, st *refitv1.ChangeManagementPolicyStatus) error {
	all, err := readUncommitted(ctx, s.Client, p.Namespace) // of all namespaces, for a policy of the platform
	if err != nil {
		return err
	}
	pending := *st.PendingMachines
	for _, u := range all {
		if u.title == p.Title() {
			pending += int32(u.held)
		}
	}
	*st.PendingMachines = min(pending, *st.SelectedMachines) // a PendingChange may be a moment older
	return nil
}
