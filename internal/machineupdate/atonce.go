package machineupdate

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
)

// heldAtOnce shows that an update waits which was just asked for, where policies hold back all of it. A fleet asks for thousands at once, and
// each takes one write then instead of a dozen requests: nothing is done that caches could be wrong about. Whoever has written since
// has the status be refused.
func (r *Reconciler) heldAtOnce(ctx context.Context, cached *refitv1.MachineUpdate) (result ctrl.Result, held bool, err error) {
	if !untouched(cached) {
		return ctrl.Result{}, false, nil
	}
	var machine clusterv1.Machine
	var cluster clusterv1.Cluster
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(cached), &machine); err != nil || !controlledBy(cached, &machine) ||
		r.Client.Get(ctx, clusterOf(&machine), &cluster) != nil || !mayWait(&cluster, &machine) {
		return ctrl.Result{}, false, nil // whoever looks closer tells why
	}
	d, err := r.Gate.Ask(ctx, &machine, cached)
	if err != nil || d.Open || !d.HoldsAll() || !r.hasArrived(ctx, &cluster, &machine) {
		return ctrl.Result{}, false, nil
	}
	result, err = r.showHeld(ctx, cached, &machine, d)
	return result, true, err
}

// showHeld writes the status of an update that a decision holds back. Where it was not as it was cached it is looked at again.
func (r *Reconciler) showHeld(ctx context.Context, cached *refitv1.MachineUpdate, machine *clusterv1.Machine, d changemanagement.Decision) (ctrl.Result, error) {
	u := &update{Reconciler: r, mu: cached.DeepCopy(), regarding: machine.DeepCopy(), atOnce: true, pause: &notPaused}
	u.tellUntold(ctx)
	if cached.Status.Phase == refitv1.PhaseWaiting {
		u.waitedFor = cached.Status.Reason
	}
	u.beginStatus(&u.mu.Status, "")
	result, err := u.show(ctx, heldBy(d, machine, u.mu), false)
	if apierrors.IsConflict(err) || halfWritten(err) {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return result, err
}

// untouched reports whether an update was asked for of which nothing was recorded, and nothing of one before it is on Machine and node.
func untouched(mu *refitv1.MachineUpdate) bool {
	s := &mu.Status
	return mu.DeletionTimestamp.IsZero() && hasFinalizer(mu) && !mu.Behind() && !leftAlone(mu) && s.ObservedDigest != mu.Spec.Digest && clean(s) && s.Slot == nil && len(s.AtWork()) == 0 &&
		!retryAsked(mu) && !abandonAsked(mu) && !rollbackAsked(mu)
}

// mayWait reports whether nothing but policies can be in the way of a Machine's update, by what caches say.
func mayWait(cluster *clusterv1.Cluster, machine *clusterv1.Machine) bool {
	return asked(machine) && taken(machine) == nil && !beingMoved(machine) && !annotations.IsPaused(cluster, machine)
}

// hasArrived reports whether all policies are known that have come with a Machine's Cluster, which a cache has. The first updates of a Cluster are many that come together, so
// that this is found out here, too: whoever looks closer makes a dozen requests for each.
func (r *Reconciler) hasArrived(ctx context.Context, cached *clusterv1.Cluster, machine *clusterv1.Machine) bool {
	if _, ok := r.arrived.Load(cached.UID); ok {
		return true
	}
	var cluster clusterv1.Cluster
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(cached), &cluster); err != nil || annotations.IsPaused(&cluster, machine) {
		return false
	}
	missing, err := r.missing(ctx, &cluster)
	return err == nil && len(missing) == 0
}

func clusterOf(machine *clusterv1.Machine) types.NamespacedName {
	return types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
}
