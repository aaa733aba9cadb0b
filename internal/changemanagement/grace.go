package changemanagement

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=changemanagementpolicies;clusterchangemanagementpolicies,verbs=patch

// grace has a policy go on to count for a while when it is deleted, by a finalizer. It returns how long it still does, and errGone when it is over.
func (s *Status) grace(ctx context.Context, policy stored, read *Policy) (time.Duration, error) {
	has := controllerutil.ContainsFinalizer(policy, refitv1.GraceFinalizer)
	deleted := policy.GetDeletionTimestamp()
	if deleted.IsZero() {
		if wants := read.DeletionGrace > 0; wants != has {
			return 0, s.setFinalizer(ctx, policy, wants)
		}
		return 0, nil
	}
	if !has {
		return 0, nil
	}
	left := read.DeletionGrace - s.Clock.Now().Sub(deleted.Time)
	if left > 0 {
		over, err := policy.succeeded(deleted.Add(-read.DeletionGrace))
		if err != nil || !over {
			return left, err
		}
	}
	if err := s.setFinalizer(ctx, policy, false); client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	return 0, errGone
}

// errGone says that a policy is there no more.
var errGone = errors.New("the policy is gone")

func (s *Status) setFinalizer(ctx context.Context, policy stored, on bool) error {
	changed, ok := policy.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T can't be copied", policy.Object) // can't be
	}
	if on {
		controllerutil.AddFinalizer(changed, refitv1.GraceFinalizer)
	} else {
		controllerutil.RemoveFinalizer(changed, refitv1.GraceFinalizer)
	}
	if err := s.Client.Patch(ctx, changed, client.MergeFromWithOptions(policy.Object, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("change the finalizers of %s %s: %w", policy.kind, client.ObjectKeyFromObject(policy), err)
	}
	policy.SetResourceVersion(changed.GetResourceVersion())
	policy.SetFinalizers(changed.GetFinalizers())
	return nil
}

// succeeded reports whether nothing is left for a policy that is deleted to hold: another one that was made since then has the same selector, and
// counts already, or its namespace goes as a whole. One that was there before is no successor: policies are joined by AND, and the usual selector
// is the empty one.
func (s *Status) succeeded(ctx context.Context, policy *refitv1.ChangeManagementPolicy, about time.Time) (bool, error) {
	var others refitv1.ChangeManagementPolicyList
	if err := s.Client.List(ctx, &others, client.InNamespace(policy.Namespace)); err != nil {
		return false, fmt.Errorf("list ChangeManagementPolicies: %w", err)
	}
	for i := range others.Items {
		o := &others.Items[i]
		if o.UID == policy.UID || !o.DeletionTimestamp.IsZero() || o.CreationTimestamp.Time.Before(about) || !equality.Semantic.DeepEqual(o.Spec.Selector, policy.Spec.Selector) {
			continue
		}
		if _, counts := s.Policies.Of(o); counts {
			return true, nil
		}
	}
	var namespace corev1.Namespace
	err := s.Live.Get(ctx, types.NamespacedName{Name: policy.Namespace}, &namespace)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("read Namespace %s: %w", policy.Namespace, err)
	}
	return err == nil && !namespace.DeletionTimestamp.IsZero(), nil
}
