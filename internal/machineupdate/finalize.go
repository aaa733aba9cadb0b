package machineupdate

import (
	"context"
	"fmt"
	"strings"
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

// removeFinalizer takes the finalizer off when nothing of refit's is left there.
func (u *update) removeFinalizer(ctx context.Context) error {
	if !clean(&u.mu.Status) {
		return nil
	}
	return u.finalizer(ctx, controllerutil.RemoveFinalizer)
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

// finalize removes what refit has put on a Machine and its node before their MachineUpdate goes. What runs on the node ends first.
func (u *update) finalize(ctx context.Context) (ctrl.Result, error) { //nolint:cyclop // one case for each way in which objects go
	switch {
	case !hasFinalizer(u.mu):
		return ctrl.Result{}, nil
	case clean(&u.mu.Status):
		return ctrl.Result{}, u.removeFinalizer(ctx)
	}
	machine, cluster, err := u.owners(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	u.regarding = machine
	paused := cluster != nil && annotations.IsPaused(cluster, u.mu) || machine != nil && (annotations.HasPaused(machine) || beingMoved(machine))
	switch {
	case machine == nil && (cluster == nil || paused):
		// Either nobody can be asked about the node any more, or the cluster was moved and the node is another refit's.
		return u.end(ctx, nil)
	case machine != nil && beingMoved(machine):
		return ctrl.Result{RequeueAfter: retryDefault}, nil
	case paused:
		return u.stays(ctx, retryDefault, "the Cluster or the Machine is paused; what refit has put on the node is removed when it no longer is", "")
	case machine == nil:
		return u.finalizeOrphan(ctx)
	case !machine.DeletionTimestamp.IsZero():
		return u.finalizeDeleted(ctx, machine)
	default:
		return u.finalizeAlone(ctx)
	}
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
	key := types.NamespacedName{Namespace: u.mu.Namespace, Name: u.mu.Labels[clusterv1.ClusterNameLabel]}
	switch err := u.Live.Get(ctx, key, cluster); {
	case apierrors.IsNotFound(err):
		cluster = nil
	case err != nil:
		return nil, nil, fmt.Errorf("read the Cluster of a MachineUpdate that is being deleted: %w", err)
	}
	return machine, cluster, nil
}

// stays keeps a MachineUpdate that is being deleted, and says why: in its status, and in an event when that is news. detail may be another
// each time.
func (u *update) stays(ctx context.Context, retry time.Duration, why, detail string) (ctrl.Result, error) {
	message := "the MachineUpdate is being deleted and stays for now: " + why
	news := !strings.HasPrefix(u.mu.Status.Message, message)
	if !news { // to write each detail would be to be woken at once
		return ctrl.Result{RequeueAfter: retry}, nil
	}
	if err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) { s.Message = message + detail }); err != nil {
		return ctrl.Result{}, err
	}
	var regarding client.Object = u.mu
	if u.regarding != nil {
		regarding = u.regarding
	}
	u.Recorder.Eventf(regarding, u.mu, corev1.EventTypeWarning, "MachineUpdateStays", "Delete", "%s", policykind.Note(message+detail))
	return ctrl.Result{RequeueAfter: retry}, nil
}

// notLeft is why a MachineUpdate stays from whose node not all of refit's could be removed.
const notLeft = "what refit has put on the node can't be removed, which is tried again: "

// finalizeOrphan removes what is left of an update whose Machine is gone.
func (u *update) finalizeOrphan(ctx context.Context) (ctrl.Result, error) {
	first, _ := u.orphans.LoadOrStore(client.ObjectKeyFromObject(u.mu), u.Clock.Now())
	err := u.releaseNode(ctx, false)
	if err != nil && u.Clock.Since(first.(time.Time)) < orphanTimeout {
		ctrl.LoggerFrom(ctx).Info("Could not remove what is left at the Node of a Machine that is gone; it is tried again", "reason", err.Error())
		return u.stays(ctx, retryDefault, "the Machine is gone, and "+notLeft, err.Error())
	}
	return u.end(ctx, err)
}

// finalizeDeleted removes what keeps a Machine that is being deleted as well.
func (u *update) finalizeDeleted(ctx context.Context, machine *clusterv1.Machine) (ctrl.Result, error) {
	result, err := u.releaseDeleted(ctx, machine, machineDeleted())
	if err != nil || !clean(&u.mu.Status) {
		return result, err
	}
	return u.end(ctx, nil)
}

// finalizeAlone releases a node whose Machine stays: somebody has deleted the MachineUpdate only. That is taken as abandoning it.
func (u *update) finalizeAlone(ctx context.Context) (ctrl.Result, error) {
	works, err := u.stillWorks(ctx)
	if err == nil && !works {
		err = u.releaseNode(ctx, false)
	}
	switch {
	case ctx.Err() != nil:
		return ctrl.Result{}, ctx.Err()
	case err != nil:
		ctrl.LoggerFrom(ctx).Error(err, "Could not leave the node of a MachineUpdate that is being deleted; it is tried again")
		return u.stays(ctx, retryDefault, notLeft, err.Error())
	case works:
		return u.stays(ctx, retryDrain, "work is under way on the node, which ends first; then all that refit has put on it is removed", "")
	}
	u.event(corev1.EventTypeNormal, "InPlaceUpdateAbandoned", "Abandon", "the MachineUpdate was deleted; nothing of refit is on the node any more")
	return u.end(ctx, nil)
}

// stillWorks reports whether work is under way on the node, also when its lease has lapsed since, which nobody renews any more.
func (u *update) stillWorks(ctx context.Context) (bool, error) {
	works, err := u.atWork(ctx, &wait{reason: refitv1.ReasonDeleting})
	if works || err != nil || u.mu.Status.ApplyingSince == nil || u.regarding == nil {
		return works, err
	}
	return u.mu.Status.RebootingSince != nil && u.boots(ctx, u.regarding) || u.runs(ctx, u.regarding), nil
}

// end lets the MachineUpdate go. left is what could not be removed.
func (u *update) end(ctx context.Context, left error) (ctrl.Result, error) {
	if left != nil {
		ctrl.LoggerFrom(ctx).Info("A MachineUpdate goes whose Machine is gone and whose workload cluster does not answer", "reason", left.Error())
	}
	err := u.finalizer(ctx, controllerutil.RemoveFinalizer)
	if err == nil {
		u.orphans.Delete(client.ObjectKeyFromObject(u.mu))
	}
	return ctrl.Result{}, err
}
