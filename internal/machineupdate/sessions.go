package machineupdate

import (
	"context"
	"fmt"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/machineupdate/flow"
)

// outside are the commands that are the first to talk to a node or a workload cluster. What comes after them may do so as well.
var outside = map[flow.Command]bool{
	flow.AskWork: true, flow.AskLogin: true, flow.ReleaseNode: true, flow.ReleaseMachine: true, flow.ReachWorkload: true, flow.Connect: true,
}

// beginSession has an update go on beside the queue, if there is a place for it. Otherwise it begins again when there is.
func (r *Reconciler) beginSession(ctx context.Context, u *update) {
	key := client.ObjectKeyFromObject(u.mu)
	r.Sessions.Begin(ctx, u.clusterKey(), key, u.started() || u.mu.Status.ApplyingSince != nil, func(ctx context.Context) {
		u.queued, u.leaves = false, false
		result, err := u.advanceSafely(ctx)
		r.requeue(ctx, ctrl.Request{NamespacedName: key}, result, err)
	})
}

// clusterKey is the Cluster whose sessions an update's are among.
func (u *update) clusterKey() types.NamespacedName {
	name := u.mu.Labels[clusterv1.ClusterNameLabel]
	if u.regarding != nil {
		name = u.regarding.Spec.ClusterName
	}
	return types.NamespacedName{Namespace: u.mu.Namespace, Name: name}
}

// advanceSafely makes an error of a panic, as the queue's workers do.
func (u *update) advanceSafely(ctx context.Context) (result ctrl.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v [recovered]\n%s", p, debug.Stack())
		}
	}()
	return u.advance(ctx)
}

// requeue has an update looked at again after its session, as the queue's workers have it after theirs.
func (r *Reconciler) requeue(ctx context.Context, req ctrl.Request, result ctrl.Result, err error) {
	switch {
	case ctx.Err() != nil: // whoever leads next looks at all
	case err != nil:
		ctrl.LoggerFrom(ctx).Error(err, "Reconciler error")
		r.queue.AddAfter(req, r.backoff.When(req))
	case result.RequeueAfter > 0:
		r.backoff.Forget(req)
		r.queue.AddAfter(req, result.RequeueAfter)
	default:
		r.backoff.Forget(req)
	}
}

// wakeUp has an update looked at now.
func (r *Reconciler) wakeUp(key types.NamespacedName) { r.queue.Add(ctrl.Request{NamespacedName: key}) }
