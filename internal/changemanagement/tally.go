package changemanagement

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
)

// tally counts the Machines that a policy of either kind selects, and those whose update waits. update is told of the update of each.
func (s *Status) tally(ctx context.Context, now time.Time, p *Policy, st *refitv1.ChangeManagementPolicyStatus, update func(*refitv1.MachineUpdate)) error {
	var selected int32
	pending := pendings{now: now}
	err := s.eachSelected(ctx, p, func(m *clusterv1.Machine) error {
		selected++
		var mu refitv1.MachineUpdate
		switch err := s.Client.Get(ctx, client.ObjectKeyFromObject(m), &mu); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		update(&mu)
		return pending.see(ctx, s.Gate.Waits, p, m, &mu)
	})
	if err != nil {
		return err
	}
	st.SelectedMachines = &selected
	pending.write(p, st)
	return nil
}

// eachSelected calls do with each Machine that a policy selects. Only Machines of Clusters that it selects are looked at: there are many policies in a
// namespace, each for a few of the Clusters.
func (s *Status) eachSelected(ctx context.Context, p *Policy, do func(*clusterv1.Machine) error) error {
	var clusters clusterv1.ClusterList
	if err := s.Client.List(ctx, &clusters, client.InNamespace(p.Namespace)); err != nil { // one of the platform has none, which is all
		return fmt.Errorf("list Clusters: %w", err)
	}
	for i := range clusters.Items {
		c := &clusters.Items[i]
		if !p.Selector.Cluster(c.Labels) || p.Namespaces != nil && !s.Policies.labelsOf(c.Namespace).match(p.Namespaces) {
			continue
		}
		var machines clusterv1.MachineList
		if err := s.Client.List(ctx, &machines, index.InCluster(c.Namespace, c.Name)); err != nil {
			return fmt.Errorf("list Machines of Cluster %s/%s: %w", c.Namespace, c.Name, err)
		}
		for j := range machines.Items {
			m := &machines.Items[j]
			if !p.Selector.Machine(RoleOf(m.Labels), m.Labels) {
				continue
			}
			if err := do(m); err != nil {
				return err
			}
		}
	}
	return nil
}
