package changemanagement

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
)

// tally counts the Machines that a policy of either kind selects, and those whose update waits. machine is told of each Machine that it could select, and
// update of the update of each that it does.
func (s *Status) tally(ctx context.Context, now time.Time, p *Policy, st *refitv1.ChangeManagementPolicyStatus,
	machine func(*clusterv1.Machine), update func(*refitv1.MachineUpdate),
) error {
	var machines clusterv1.MachineList
	if err := s.Client.List(ctx, &machines, client.InNamespace(p.Namespace)); err != nil { // one of the platform has none, which is all
		return fmt.Errorf("list Machines: %w", err)
	}
	clusters := clustersOfPolicy{status: s, policy: p, selected: map[types.NamespacedName]bool{}}
	var selected int32
	pending := pendings{now: now}
	for i := range machines.Items {
		m := &machines.Items[i]
		machine(m)
		ok, err := clusters.selects(ctx, m)
		if err != nil {
			return err
		}
		if !ok || !p.Selector.Machine(RoleOf(m.Labels), m.Labels) {
			continue
		}
		selected++
		var mu refitv1.MachineUpdate
		switch err := s.Client.Get(ctx, client.ObjectKeyFromObject(m), &mu); {
		case client.IgnoreNotFound(err) != nil:
			return err
		case err == nil:
			if err := pending.see(ctx, s.Gate.Waits, p, m, &mu); err != nil {
				return err
			}
			update(&mu)
		}
	}
	st.SelectedMachines = &selected
	pending.write(p, st)
	return nil
}

// clustersOfPolicy are the Clusters that a policy selects, as they were looked at for their Machines.
type clustersOfPolicy struct {
	status   *Status
	policy   *Policy
	selected map[types.NamespacedName]bool
}

// selects reports whether the policy selects the Cluster of a Machine.
func (c *clustersOfPolicy) selects(ctx context.Context, m *clusterv1.Machine) (bool, error) {
	subject := inplace.SubjectOf(m)
	key := types.NamespacedName{Namespace: m.Namespace, Name: subject.Cluster}
	if known, ok := c.selected[key]; ok {
		return known, nil
	}
	one := &Candidate{Subject: subject}
	if err := (Candidates{c.status.Client}).complete(ctx, one, owner{}); client.IgnoreNotFound(err) != nil {
		return false, err
	}
	ofNamespace := c.policy.Namespaces == nil || c.status.Policies.labelsOf(m.Namespace).match(c.policy.Namespaces)
	c.selected[key] = ofNamespace && c.policy.Selector.Cluster(one.ClusterLabels)
	return c.selected[key], nil
}
