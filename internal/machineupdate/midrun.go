package machineupdate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// afterRun returns what an update waits for while what runs on its node is taken to its end, before the node is left.
func (w *wait) afterRun() *wait {
	out := *w
	out.message += "; work is under way on the node, which can't be left half done: that ends first, and until then refit keeps the node"
	out.retry = retryDrain
	return &out
}

// atWork reports whether work is under way on the node, which refit still keeps others off. While a hold is met nobody renews its
// lease: when that has lapsed, or is another's, there is nothing left to keep, and that also bounds for how long the hold waits.
func (u *update) atWork(ctx context.Context, w *wait) (bool, error) {
	if u.mu.Status.ApplyingSince == nil || u.regarding == nil || w.reason == refitv1.ReasonUnreachable {
		return false, nil
	}
	if err := u.reachWorkload(ctx); err != nil {
		return false, err
	}
	until, err := u.locker().KeptUntil(ctx, u.nodeName(), u.machineUID())
	if err != nil || !u.Clock.Now().Before(until) {
		return false, err
	}
	if u.boots(ctx, u.regarding) {
		return true, nil
	}
	status, known := u.lastOnNode(ctx, u.regarding)
	works := known && underWay(status)
	if !known && w.reason == refitv1.ReasonWithdrawn {
		works = true // a withdrawn update is not taken up again, so that a node that could not be asked once must not end it
	}
	return works, ctx.Err() // who is shutting down has not asked
}

// boots reports whether the node does not answer because it reboots, which is a step of the work on it. It may take as long as any
// reboot, or as the node's lease lasts if nobody has seen when it began.
func (u *update) boots(ctx context.Context, machine *clusterv1.Machine) bool {
	if since := u.mu.Status.RebootingSince; !u.reboots() || since != nil && u.Clock.Since(since.Time) > u.rebootPatience() {
		return false
	}
	a, w := u.access(ctx, machine)
	if w != nil {
		return false
	}
	conn, err := u.Dialer.Dial(ctx, a.Target)
	if err == nil {
		_ = conn.Close() // it was only looked whether it answers
		return false
	}
	w = waitFor(err)
	return w != nil && w.reason == refitv1.ReasonUnreachable
}

// reachWorkload finds the workload cluster, for a reconciliation that has not been there yet.
func (u *update) reachWorkload(ctx context.Context) error {
	if u.occupied.cluster != nil {
		return nil
	}
	cluster, err := u.Workloads.Get(ctx, types.NamespacedName{Namespace: u.mu.Namespace, Name: u.mu.Labels[clusterv1.ClusterNameLabel]})
	if err != nil {
		return fmt.Errorf("reach the workload cluster to release the node: %w", err)
	}
	u.occupied.cluster = cluster
	return nil
}
