package changemanagement

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/inplace"
)

// tally counts the Machines that a policy of either kind selects, and those whose update waits. update is told of the update of each.
func (s *Status) tally(ctx context.Context, now time.Time, p *Policy, st *refitv1.ChangeManagementPolicyStatus, update func(*refitv1.MachineUpdate)) error {
	var selected int32
	pending := pendings{now: now}
	of, err := index.Lookup[refitv1.MachineUpdate](ctx, s.cached())
	if err != nil {
		return err
	}
	err = s.eachSelected(ctx, p, func(m *clusterv1.Machine) error {
		selected++
		mu, err := of(client.ObjectKeyFromObject(m))
		if err != nil || mu == nil {
			return err
		}
		update(mu)
		return pending.see(ctx, s.Gate.Waits, p, m, mu)
	})
	if err != nil {
		return err
	}
	st.SelectedMachines = &selected
	pending.write(p, st)
	return nil
}

// eachSelected calls do with each Machine that a policy selects. Where it selects Clusters, only their Machines are looked at: there are many policies in a
// namespace, each for a few of the Clusters. One that selects any has those, too, whose Cluster is gone.
func (s *Status) eachSelected(ctx context.Context, p *Policy, do func(*clusterv1.Machine) error) error {
	if p.Selector.Cluster(nil) {
		return s.eachMachine(ctx, p, index.InNamespace(p.Namespace), do) // one of the platform has none, which is all
	}
	var clusters clusterv1.ClusterList
	if err := s.Client.List(ctx, &clusters, client.InNamespace(p.Namespace)); err != nil {
		return fmt.Errorf("list Clusters: %w", err)
	}
	for i := range clusters.Items {
		c := &clusters.Items[i]
		if !p.Selector.Cluster(c.Labels) {
			continue
		}
		if err := s.eachMachine(ctx, p, index.InCluster(c.Namespace, c.Name), do); err != nil {
			return err
		}
	}
	return nil
}

// eachMachine calls do with each Machine that a policy selects: of a Cluster that it selects, or, where none is named, of those that it does.
func (s *Status) eachMachine(ctx context.Context, p *Policy, of index.Where, do func(*clusterv1.Machine) error) error {
	clusters := clustersOfPolicy{status: s, policy: p, selected: map[types.NamespacedName]bool{}}
	err := index.Each(ctx, s.cached(), of, &clusterv1.MachineList{}, func(m *clusterv1.Machine) error {
		ok, err := clusters.selects(ctx, m)
		if err != nil || !ok || !p.Selector.Machine(RoleOf(m.Labels), m.Labels) {
			return err
		}
		return do(m)
	})
	if err != nil {
		return fmt.Errorf("count Machines: %w", err)
	}
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
