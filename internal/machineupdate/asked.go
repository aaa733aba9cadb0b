package machineupdate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/machineupdate/flow"
	"github.com/capi-refit/refit/internal/node"
)

// updateMachineHook is the hook that Cluster API notes as pending on a Machine.
const updateMachineHook = "UpdateMachine"

// asked reports whether Cluster API has a Machine updated in place, as the Machine itself says. Cluster API marks it, then writes the
// desired specs to the Machine and its objects, and notes the hook as pending at last; only then does it call, and when it is told
// that the update is done it takes both away. So no call comes before them or after them.
func asked(machine *clusterv1.Machine) bool {
	_, marked := machine.Annotations[clusterv1.UpdateInProgressAnnotation]
	pending := strings.Split(machine.Annotations[runtimev1.PendingHooksAnnotation], ",")
	return marked && slices.Contains(pending, updateMachineHook) && machine.DeletionTimestamp.IsZero()
}

// noLongerAsked says that an update is withdrawn.
const noLongerAsked = "Cluster API no longer asks for this update: its annotations " + clusterv1.UpdateInProgressAnnotation +
	" and " + runtimev1.PendingHooksAnnotation + " are gone from the Machine"

// standsOff is returned when a Machine is not to be worked on any more, as its objects say.
type standsOff struct{ *wait }

// Error implements error.
func (e standsOff) Error() string { return e.message }

func withdrawn() *wait {
	return &wait{reason: refitv1.ReasonWithdrawn, message: noLongerAsked, releases: true}
}

// isWithdrawn reports whether the Machine is there, and nobody asks for its update any more.
func (u *update) isWithdrawn() bool { return u.seen.Machine == flow.Present && !u.seen.Asked }

// unasked reports whether nobody asks for an update any more. A repair is asked for by a policy, and not by Cluster API.
func unasked(mu *refitv1.MachineUpdate, machine *clusterv1.Machine) bool {
	return !asked(machine) && !repairs(mu)
}

// gone reports whether a Machine is about to go, or nobody asks for its update any more.
func gone(mu *refitv1.MachineUpdate, machine *clusterv1.Machine) bool {
	return !machine.DeletionTimestamp.IsZero() || unasked(mu, machine)
}

// repairs reports whether a MachineUpdate is about a node that is brought back to what was applied.
func repairs(mu *refitv1.MachineUpdate) bool {
	return mu.Status.Repair != nil && mu.Status.ObservedDigest == mu.Spec.Digest
}

// withdraw ends an update that Cluster API no longer asks for, whose node is released. If nothing was begun there the MachineUpdate becomes
// what it was before it was asked for; otherwise it has failed, since the node may have a part of the specs.
func (u *update) withdraw(ctx context.Context) (ctrl.Result, error) {
	message := u.waits().message
	if u.mu.Status.ApplyingSince != nil {
		return u.fail(ctx, refitv1.ReasonWithdrawn, message+"; "+u.whatIsThere())
	}
	switch applied := appliedBefore(&u.mu.Status); {
	case applied != "":
		return ctrl.Result{}, u.goBack(ctx, applied)
	case u.isFirst():
		return ctrl.Result{}, u.forget(ctx)
	default:
		if err := u.set(ctx, u.noteReleased); err != nil {
			return ctrl.Result{}, err
		}
		return u.fail(ctx, refitv1.ReasonWithdrawn, message+"; nothing was changed on the node by it, and what the node had before is not known: an update before it had not ended well, or was made by an earlier version of refit")
	}
}

// whatIsThere returns what a node has of an update that has ended half way, by what the node has said before it was released. Now another may
// have it.
func (u *update) whatIsThere() string {
	status := u.saidLast
	switch {
	case status != nil && status.State == node.Failed:
		u.failedRun = status
		if status.RolledBack {
			return "the work on the node had failed, and the node shows again what it showed before"
		}
		return "the work on the node had failed: " + status.Message
	case status != nil && status.State == node.Succeeded:
		return "the node has made its changes, and nobody has compared them with what is desired"
	default:
		return fmt.Sprintf("the node had begun its changes and done %d of %d steps when it was last seen, so it may have a part of the specs",
			u.mu.Status.StepsDone, u.mu.Status.StepsTotal)
	}
}

// appliedBefore returns the digest of the specs that the node was brought to before an update that has changed nothing on it; "" if
// that is not known.
func appliedBefore(s *refitv1.MachineUpdateStatus) string {
	if s.Phase == refitv1.PhaseSucceeded {
		return s.ObservedDigest
	}
	return s.AppliedDigest
}

// isFirst reports whether nothing is known of the Machine but that this update was asked for.
func (u *update) isFirst() bool {
	s := u.mu.Status.DeepCopy()
	revokeAdmission(s)
	return s.LastSucceededAt == nil && len(s.Starts) == 0 && s.FailedToken == 0 && s.ObservedAbandon == ""
}

// goBack makes the MachineUpdate that of the specs which the node has.
func (u *update) goBack(ctx context.Context, applied string) error {
	if u.mu.Spec.Digest != applied {
		changed := u.mu.DeepCopy()
		changed.Spec.Digest = applied
		if err := u.Client.Patch(ctx, changed, client.MergeFromWithOptions(u.mu, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("put MachineUpdate %s back to what the node has: %w", client.ObjectKeyFromObject(u.mu), err)
		}
		u.mu.Spec, u.mu.ResourceVersion, u.mu.Generation = changed.Spec, changed.ResourceVersion, changed.Generation
	}
	at := u.now()
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		settle(s, settledWithdrawn)
		s.Phase, s.Reason, s.Step, s.FinishedAt = refitv1.PhaseSucceeded, "", "", &at
		s.Message = "the node was updated before; Cluster API has asked for other specs since and no longer does, and nothing was changed on the node for them"
		s.ObservedDigest, s.ObservedRetry, s.AppliedDigest = applied, u.mu.RetryRequest(), ""
	})
	if err == nil {
		u.Gate.Forget(u.mu)
	}
	return err
}

// forget deletes the MachineUpdate of a Machine that was never updated.
func (u *update) forget(ctx context.Context) error {
	if u.mu.Status.HostKey != "" && u.regarding != nil { // of an earlier version of refit, which kept it here
		if _, err := u.knownHost(ctx, u.regarding); err != nil {
			return err
		}
	}
	revokeAdmission(&u.mu.Status)
	u.Gate.Forget(u.mu)
	if err := u.finalizer(ctx, controllerutil.RemoveFinalizer); err != nil { // the node was released before
		return err
	}
	err := u.Client.Delete(ctx, u.mu, client.Preconditions{UID: &u.mu.UID, ResourceVersion: &u.mu.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete MachineUpdate %s, which Cluster API no longer asks for: %w", client.ObjectKeyFromObject(u.mu), err)
	}
	u.tellWithdrawn("the update was withdrawn: " + noLongerAsked + "; nothing was changed on the node")
	return nil
}

func (u *update) tellWithdrawn(message string) {
	u.event(corev1.EventTypeNormal, "InPlaceUpdateWithdrawn", "Withdraw", message)
}

// controlledBy reports whether a MachineUpdate, or nil, is that of a Machine.
func controlledBy(mu *refitv1.MachineUpdate, machine *clusterv1.Machine) bool {
	return mu != nil && metav1.IsControlledBy(mu, machine)
}
