package rotation

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=bootimagepolicies/status,verbs=patch

// maxTargets is how many targets a status names.
const maxTargets = 100

// reasonUnusable is the reason of the condition where nothing can be told of any target.
const reasonUnusable = "Unusable"

// order is in which order a status names targets: those first that need somebody. It has all states.
var order = []refitv1.BootImageTargetState{
	refitv1.TargetStopped, refitv1.TargetRefused, refitv1.TargetForeign, refitv1.TargetPaused, refitv1.TargetPending,
	refitv1.TargetRotated, refitv1.TargetUpToDate,
}

// good reports whether a target has the golden image.
func good(s refitv1.BootImageTargetState) bool {
	return s == refitv1.TargetRotated || s == refitv1.TargetUpToDate
}

// show writes into the policy how its targets stand.
func (p *pass) show(targets []refitv1.BootImageTarget) {
	slices.SortFunc(targets, func(a, b refitv1.BootImageTarget) int {
		return cmp.Or(slices.Index(order, a.State)-slices.Index(order, b.State), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	var upToDate int32
	for i := range targets {
		targets[i].Message = policykind.Note(targets[i].Message)
		if good(targets[i].State) {
			upToDate++
		}
	}
	st := p.policy.Status.Rotation
	st.ObservedGeneration = p.policy.Generation
	st.Selected, st.UpToDate = ptr.To(int32(len(targets))), &upToDate
	st.Targets = targets[:min(len(targets), maxTargets)]
	c := metav1.Condition{
		Type: refitv1.RotationUpToDateCondition, Status: metav1.ConditionTrue, Reason: string(refitv1.TargetUpToDate),
		ObservedGeneration: p.policy.Generation, Message: fmt.Sprintf("the templates of all %d targets have the golden image", len(targets)),
	}
	switch {
	case len(targets) == 0:
		c.Message = fmt.Sprintf("no target is selected that refers to a %s", p.selector.template.Kind)
	case !good(targets[0].State):
		first := targets[0]
		c.Status, c.Reason = metav1.ConditionFalse, string(first.State)
		c.Message = fmt.Sprintf("%d of %d targets do not have the golden image, the first: %s %s: %s", len(targets)-int(upToDate), len(targets),
			first.Kind, first.Name, first.Message)
	}
	meta.SetStatusCondition(&p.policy.Status.Conditions, c)
}

// invalid writes into a policy that nothing can be told of its targets. What it has counted of them stays.
func invalid(policy *refitv1.BootImagePolicy, message string) {
	if policy.Status.Rotation == nil {
		policy.Status.Rotation = &refitv1.BootImageRotationStatus{}
	}
	policy.Status.Rotation.ObservedGeneration = policy.Generation
	meta.SetStatusCondition(&policy.Status.Conditions, metav1.Condition{
		Type: refitv1.RotationUpToDateCondition, Status: metav1.ConditionUnknown, Reason: reasonUnusable,
		ObservedGeneration: policy.Generation, Message: message,
	})
}

// clearStatus takes out of a policy what a rotation has written.
func clearStatus(policy *refitv1.BootImagePolicy) {
	policy.Status.Rotation = nil
	meta.RemoveStatusCondition(&policy.Status.Conditions, refitv1.RotationUpToDateCondition)
}

// write writes the status if it has changed. It returns false if somebody else has written the policy meanwhile, or it is gone:
// it is looked at again.
func (c *Controller) write(ctx context.Context, policy, base *refitv1.BootImagePolicy) (bool, error) {
	if equality.Semantic.DeepEqual(base.Status, policy.Status) {
		return true, nil
	}
	// Conditions are a list, and others write theirs.
	err := c.Client.Status().Patch(ctx, policy.DeepCopy(), client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write the status of BootImagePolicy %s: %w", client.ObjectKeyFromObject(policy), err)
	}
	return true, nil
}

// tell has Events for what has come to need somebody.
func (c *Controller) tell(policy, base *refitv1.BootImagePolicy) {
	before := map[[2]string]refitv1.BootImageTarget{}
	if base.Status.Rotation != nil {
		for _, t := range base.Status.Rotation.Targets {
			before[[2]string{t.Kind, t.Name}] = t
		}
	}
	for _, t := range policy.Status.Rotation.Targets {
		was := before[[2]string{t.Kind, t.Name}]
		if (t.State == refitv1.TargetStopped || t.State == refitv1.TargetRefused) && (was.State != t.State || was.Message != t.Message) {
			c.Recorder.Eventf(policy, nil, corev1.EventTypeWarning, "BootImage"+string(t.State), "Rotate", "%s",
				policykind.Note(fmt.Sprintf("%s %s: %s", t.Kind, t.Name, t.Message)))
		}
	}
	is, had := meta.FindStatusCondition(policy.Status.Conditions, refitv1.RotationUpToDateCondition),
		meta.FindStatusCondition(base.Status.Conditions, refitv1.RotationUpToDateCondition)
	if is.Reason == reasonUnusable && (had == nil || had.Message != is.Message) {
		c.Recorder.Eventf(policy, nil, corev1.EventTypeWarning, "BootImageUnusable", "Rotate", "%s", policykind.Note(is.Message))
	}
}
