package changemanagement

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
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

// countCluster counts what a policy of the platform selects in all namespaces. How long updates take, and what those of Machines that are gone have done,
// is said of namespaces, which differ, and which the one who writes this status may not work on.
func (s *Status) countCluster(ctx context.Context, now time.Time, p *Policy, st *refitv1.ChangeManagementPolicyStatus) error {
	if err := s.tally(ctx, now, p, st, func(*refitv1.MachineUpdate) {}); err != nil {
		return err
	}
	return s.countUncommitted(ctx, p, st)
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
