package machineupdate

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// afterRun returns what an update waits for while what runs on its node is taken to its end, before the node is released.
func (w *wait) afterRun() *wait {
	out := *w
	out.message += "; work is under way on the node, which can't be left half done: that ends first, and until then refit keeps the node"
	out.retry = retryDrain
	return &out
}

// unknownRun returns what an update waits for while nobody knows what its node does, before the node is released.
func (w *wait) unknownRun() *wait {
	out := *w
	out.message += "; the node does not answer, so that nobody knows whether work goes on there: it is asked again, and until then refit keeps the node"
	return &out
}

// boots reports whether the node does not answer because it reboots, which is a step of the work on it. It may take as long as any
// reboot, or as the node's lease lasts if nobody has seen when it began.
func (u *update) boots(ctx context.Context, machine *clusterv1.Machine) bool {
	if since := u.mu.Status.RebootingSince; !u.reboots() || since != nil && u.Clock.Since(since.Time) > u.rebootPatience() {
		return false
	}
	a, w, err := u.access(ctx, machine)
	if w != nil || err != nil {
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
	cluster, err := u.Workloads.Get(ctx, u.cluster(u.regarding))
	if err != nil {
		return fmt.Errorf("reach the workload cluster to release the node: %w", err)
	}
	u.occupied.cluster = cluster
	return nil
}
