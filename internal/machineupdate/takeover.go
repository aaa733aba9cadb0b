package machineupdate

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// takenOver returns in how long an update is looked at that this process has not looked at yet, and that another one has found to wait for a node or an API
// server that does not answer. Who takes over a fleet would ask all that are silent at once, and again after seconds, and those that may start would
// wait behind them: each is asked within the time after which the other process would have asked it, and so is what wakes it before. When that is depends on
// the clock and on the update alone, so that processes that follow each other do not put it off.
func (r *Reconciler) takenOver(ctx context.Context, cached *refitv1.MachineUpdate) time.Duration {
	key, now := client.ObjectKeyFromObject(cached), r.Clock.Now()
	if !r.isSilent(ctx, cached) {
		r.firstLooks.Store(key, time.Time{})
		return 0
	}
	every := askSilent(now.Sub(cached.Status.PhaseSince.Time)).Truncate(time.Second)
	turn := spread(cached, every-time.Second) - time.Duration(now.Unix())*time.Second%every
	at, _ := r.firstLooks.LoadOrStore(key, now.Add((turn+every)%every))
	if after := at.(time.Time).Sub(now); after > 0 {
		return after
	}
	r.firstLooks.Store(key, time.Time{})
	return 0
}

// isSilent reports whether an update waits for an answer, and for nothing that anybody may have brought about meanwhile.
func (r *Reconciler) isSilent(ctx context.Context, mu *refitv1.MachineUpdate) bool {
	if !showsSilence(&mu.Status) || !nothingAsked(mu) || mu.Behind() || leftAlone(mu) {
		return false
	}
	var machine clusterv1.Machine
	var cluster clusterv1.Cluster
	return r.Client.Get(ctx, client.ObjectKeyFromObject(mu), &machine) == nil && !gone(mu, &machine) &&
		r.Client.Get(ctx, clusterOf(&machine), &cluster) == nil && !annotations.IsPaused(&cluster, &machine)
}

// showsSilence reports whether a status shows that an update waits for a node or an API server that does not answer, and that nothing is at work.
func showsSilence(s *refitv1.MachineUpdateStatus) bool {
	return s.Phase == refitv1.PhaseWaiting && (s.Reason == refitv1.ReasonUnreachable || s.Reason == refitv1.ReasonWorkload) &&
		s.PhaseSince != nil && len(s.AtWork()) == 0
}
