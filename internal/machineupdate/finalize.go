package machineupdate

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/machineupdate/flow"
	"github.com/capi-refit/refit/internal/policykind"
)

// orphanTimeout is for how long a workload cluster that does not answer keeps the MachineUpdate of a Machine that is gone, from when this
// process has tried first to reach it: while nobody leads, nobody tries.
const orphanTimeout = 10 * time.Minute

// deletedMessage tells why an update that was asked for does not go on.
const deletedMessage = "the MachineUpdate is being deleted; what runs on the node ends first, then all that refit has put on it is removed; " +
	"if Cluster API asks for the update again, it begins again"

// hasFinalizer reports whether a MachineUpdate has the finalizer.
func hasFinalizer(mu *refitv1.MachineUpdate) bool {
	return controllerutil.ContainsFinalizer(mu, refitv1.UpdateFinalizer)
}

// addFinalizer puts the finalizer on before anything of refit's is put on the Machine or its node.
func (u *update) addFinalizer(ctx context.Context) error {
	return u.finalizer(ctx, controllerutil.AddFinalizer)
}

// removeFinalizer takes the finalizer off: nothing of refit's is left there, or nobody can be asked about it.
func (u *update) removeFinalizer(ctx context.Context) error {
	if err := u.finalizer(ctx, controllerutil.RemoveFinalizer); err != nil {
		return err
	}
	u.noteDeleted()
	u.orphans.Delete(client.ObjectKeyFromObject(u.mu))
	if !u.mu.DeletionTimestamp.IsZero() && u.seen.Machine == flow.Present {
		u.event(corev1.EventTypeNormal, "InPlaceUpdateAbandoned", "Abandon", "the MachineUpdate was deleted; nothing of refit is on the node any more")
	}
	return nil
}

// clean reports whether nothing of refit's is on the Machine, on the Node and on the node itself.
func clean(s *refitv1.MachineUpdateStatus) bool {
	return s.Node == nil && s.Drain == nil && s.ApplyingSince == nil
}

// finalizer changes the finalizers. It fails with a conflict when somebody else has written in between.
func (u *update) finalizer(ctx context.Context, change func(client.Object, string) bool) error {
	changed := u.mu.DeepCopy()
	if !change(changed, refitv1.UpdateFinalizer) {
		return nil
	}
	err := u.Client.Patch(ctx, changed, client.MergeFromWithOptions(u.mu, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("write the finalizers of MachineUpdate %s: %w", client.ObjectKeyFromObject(u.mu), err)
	}
	u.mu.Finalizers, u.mu.ResourceVersion = changed.Finalizers, changed.ResourceVersion
	return nil
}

// findOwners finds out what has become of the Machine and the Cluster of a MachineUpdate that is being deleted.
func (u *update) findOwners(ctx context.Context) (*wait, error) { //nolint:cyclop // a table: one way in which objects go after the other
	machine, cluster, err := u.owners(ctx)
	if err != nil {
		return nil, err
	}
	u.regarding = machine
	paused := cluster != nil && annotations.IsPaused(cluster, u.mu) || machine != nil && (annotations.HasPaused(machine) || beingMoved(machine))
	switch {
	case machine == nil && (cluster == nil || paused):
		u.seen.Machine = flow.Unasked
	case paused:
		u.seen.Machine = flow.HeldBack
	case machine == nil:
		u.seen.Machine = flow.Gone
	case !machine.DeletionTimestamp.IsZero():
		u.seen.Machine, u.seen.Late = flow.Leaving, u.late(machine)
	default:
		u.seen.Machine = flow.Present
	}
	return nil, nil
}

// late reports whether a Machine that is being deleted does not wait for the work on its node any more.
func (u *update) late(machine *clusterv1.Machine) bool {
	return u.Clock.Since(machine.DeletionTimestamp.Time) >= safePoint
}

// owners returns the Machine, nil if it is gone, and its Cluster, nil if that is gone.
func (u *update) owners(ctx context.Context) (*clusterv1.Machine, *clusterv1.Cluster, error) {
	machine, cluster := &clusterv1.Machine{}, &clusterv1.Cluster{}
	switch err := u.Live.Get(ctx, client.ObjectKeyFromObject(u.mu), machine); {
	case apierrors.IsNotFound(err), err == nil && !metav1.IsControlledBy(u.mu, machine):
		machine = nil
	case err != nil:
		return nil, nil, fmt.Errorf("read the Machine of a MachineUpdate that is being deleted: %w", err)
	}
	switch err := u.Live.Get(ctx, u.cluster(machine), cluster); {
	case apierrors.IsNotFound(err):
		cluster = nil
	case err != nil:
		return nil, nil, fmt.Errorf("read the Cluster of a MachineUpdate that is being deleted: %w", err)
	}
	return machine, cluster, nil
}

// cluster returns the name of the Cluster of a Machine. Only of one that is gone it is what the label of the MachineUpdate says, which anybody
// may edit.
func (u *update) cluster(machine *clusterv1.Machine) types.NamespacedName {
	key := types.NamespacedName{Namespace: u.mu.Namespace, Name: u.mu.Labels[clusterv1.ClusterNameLabel]}
	if machine != nil {
		key.Name = machine.Spec.ClusterName
	}
	return key
}

// notReleased is why a MachineUpdate stays from whose node not all of refit's could be removed.
const notReleased = "what refit has put on the node can't be removed, which is tried again: "

// stay keeps a MachineUpdate that is being deleted, and shows why.
func (u *update) stay(ctx context.Context) (ctrl.Result, error) {
	switch {
	case u.seen.Machine == flow.HeldBack && u.regarding != nil && beingMoved(u.regarding):
		return ctrl.Result{RequeueAfter: retryDefault}, nil
	case u.seen.Machine == flow.HeldBack:
		return u.stays(ctx, &wait{
			reason: refitv1.ReasonPaused, message: "the Cluster or the Machine is paused; what refit has put on the node is removed when it no longer is",
		}, "paused")
	case u.seen.Work == flow.Unreleased:
		message := notReleased + u.unreleased.Error()
		if u.seen.Machine == flow.Gone {
			message = "the Machine is gone, and " + message
		}
		return u.stays(ctx, &wait{reason: u.unreleasedReason(), message: message}, "release the node")
	case u.seen.Work == flow.Unknown:
		return u.stays(ctx, &wait{
			reason: refitv1.ReasonUnreachable,
			message: "the node does not answer, so that nobody knows whether work goes on there, and it is asked again; " +
				"a node that does not come back is given up by deleting its Machine",
		}, "node does not answer")
	default:
		return u.stays(ctx, &wait{
			reason: refitv1.ReasonBusy, message: "work is under way on the node, which ends first; then all that refit has put on it is removed", retry: retryDrain,
		}, "work under way")
	}
}

// stays shows why a MachineUpdate stays, and tells it when it is news.
func (u *update) stays(ctx context.Context, w *wait, step string) (ctrl.Result, error) {
	delayed := refitv1.DelayedEnd{Request: refitv1.EndDelete, Reason: w.reason}
	if u.delays(delayed) {
		return w.again(), nil
	}
	message := "the MachineUpdate is being deleted and stays for now: " + w.message
	err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Step, s.Message, s.DelayedEnd = "finalize: "+step, message, &delayed
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	var regarding client.Object = u.mu
	if u.regarding != nil {
		regarding = u.regarding
	}
	u.Recorder.Eventf(regarding, u.mu, corev1.EventTypeWarning, "MachineUpdateStays", "Delete", "%s", policykind.Note(message))
	return w.again(), nil
}

// outlasts reports whether a MachineUpdate whose Machine is gone goes although what is left at its Node could not be removed: its workload
// cluster has not answered for too long.
func (u *update) outlasts(ctx context.Context, err error) bool {
	if u.waitedSince(&u.orphans) < orphanTimeout {
		u.couldNotRelease(ctx, err)
		return false
	}
	ctrl.LoggerFrom(ctx).Info("A MachineUpdate goes whose Machine is gone and whose workload cluster does not answer", "reason", err.Error())
	return true
}
