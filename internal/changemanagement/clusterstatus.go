package changemanagement

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
)

// reconcileCluster writes the status of a policy of the platform.
func (s *Status) reconcileCluster(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy refitv1.ClusterChangeManagementPolicy
	return s.reconcile(ctx, req, stored{
		Object: &policy, kind: clusterKind, status: &policy.Status,
		read:      func() (*Policy, bool) { return s.Policies.Cluster.Of(&policy) },
		count:     func(now time.Time, read *Policy) error { return s.countCluster(ctx, now, read, &policy.Status) },
		succeeded: func(about time.Time) (bool, error) { return s.clusterSucceeded(ctx, &policy, about) },
	})
}

// countCluster counts the Machines of all namespaces that a policy of the platform selects, and those whose update waits. How long updates take, and what
// those of Machines that are gone have done, is said of namespaces, which differ, and which the one who writes this status may not work on.
func (s *Status) countCluster(ctx context.Context, now time.Time, p *Policy, st *refitv1.ChangeManagementPolicyStatus) error {
	var machines clusterv1.MachineList
	if err := s.Client.List(ctx, &machines); err != nil {
		return fmt.Errorf("list Machines: %w", err)
	}
	clusters := clustersOfPolicy{status: s, policy: p, selected: map[types.NamespacedName]bool{}}
	var selected int32
	pending := pendings{now: now}
	for i := range machines.Items {
		m := &machines.Items[i]
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
		}
	}
	st.SelectedMachines = &selected
	pending.write(p, st)
	return s.countUncommitted(ctx, p, st)
}

// clustersOfPolicy are the Clusters that a policy of the platform selects, as they were looked at for their Machines.
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
	selected := c.policy.Selector.Cluster(one.ClusterLabels) && c.status.Policies.labelsOf(m.Namespace).match(c.policy.Namespaces)
	c.selected[key] = selected
	return selected, nil
}

// clusterSucceeded is succeeded for a policy of the platform.
func (s *Status) clusterSucceeded(ctx context.Context, policy *refitv1.ClusterChangeManagementPolicy, about time.Time) (bool, error) {
	var others refitv1.ClusterChangeManagementPolicyList
	if err := s.Client.List(ctx, &others); err != nil {
		return false, fmt.Errorf("list ClusterChangeManagementPolicies: %w", err)
	}
	for i := range others.Items {
		o := &others.Items[i]
		if o.UID == policy.UID || !o.DeletionTimestamp.IsZero() || o.CreationTimestamp.Time.Before(about) ||
			!equality.Semantic.DeepEqual(o.Spec.Selector, policy.Spec.Selector) ||
			!equality.Semantic.DeepEqual(o.Spec.NamespaceSelector, policy.Spec.NamespaceSelector) {
			continue
		}
		if _, counts := s.Policies.Cluster.Of(o); counts {
			return true, nil
		}
	}
	return false, nil
}
