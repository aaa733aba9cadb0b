package machineupdate

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/annotations"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// clusterctl move pauses a Cluster, waits until nothing of it has the block-move annotation, copies all objects without their statuses,
// deletes them where they were, and lets the Cluster go on where they are. It reads who has the annotation before it pauses. So an
// update has it as long as refit works on its node, and loses it when refit has released the node because of the pause.

// beingMoved reports whether clusterctl has copied an object to another management cluster and is about to delete it here: what it stands for
// is no longer this refit's.
func beingMoved(obj metav1.Object) bool {
	_, ok := obj.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]
	return ok
}

// leftAlone reports whether a MachineUpdate itself is being moved, or paused.
func leftAlone(mu *refitv1.MachineUpdate) bool { return beingMoved(mu) || annotations.HasPaused(mu) }

// moveBlocked reports whether clusterctl waits for a MachineUpdate before it moves anything.
func moveBlocked(mu *refitv1.MachineUpdate) bool {
	_, ok := mu.Annotations[clusterctlv1.BlockMoveAnnotation]
	return ok
}

// blocksMove reports whether it is to wait: from when the work on the node starts until that has ended, or refit has released the node.
func (u *update) blocksMove() bool {
	switch u.mu.Status.Phase {
	case refitv1.PhaseDraining, refitv1.PhaseApplying, refitv1.PhaseVerifying:
		return true
	case refitv1.PhaseSucceeded, refitv1.PhaseFailed:
		return false
	default:
		return moveBlocked(u.mu) && !u.seen.Released
	}
}

// Arrivals know the policies that there are. They read them from a cache.
type Arrivals interface {
	// Missing returns those of a namespace that the API server has and that are not known yet, as messages name them.
	Missing(ctx context.Context, live client.Reader, namespace string) ([]string, error)
}

// retryArrivals is how long until policies that were moved here are in the caches.
const retryArrivals = time.Second

// paused returns what an update of a Machine waits for while it is not refit's to decide: as long as it or its Cluster is paused, and then
// until all policies are known that have come with the Cluster. clusterctl makes them before it lets the Cluster go on, so that from
// then on it is enough to look once.
func (u *update) paused(ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine) (*wait, error) {
	if annotations.IsPaused(cluster, machine) || annotations.HasPaused(u.mu) {
		u.arrived.Delete(cluster.UID)
		message := "the Cluster or the Machine is paused; the update goes on when it no longer is"
		if !annotations.IsPaused(cluster, machine) {
			message = "the MachineUpdate is paused; it goes on when it no longer has the annotation " + clusterv1.PausedAnnotation
		}
		return &wait{reason: refitv1.ReasonPaused, message: message, releases: true}, nil
	}
	missing, err := u.missing(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		message := fmt.Sprintf("the Cluster is new here, or was paused, and this server has not read all of its policies yet: %s; they are read in a moment", strings.Join(missing, ", "))
		return &wait{reason: refitv1.ReasonPaused, message: message, retry: retryArrivals}, nil
	}
	return nil, nil
}

// missing returns the policies of a Cluster that have come with it and are not known yet, as messages name them. The Cluster is as the API server has it, and
// not paused.
func (r *Reconciler) missing(ctx context.Context, cluster *clusterv1.Cluster) (missing []string, err error) {
	if _, ok := r.arrived.Load(cluster.UID); ok {
		return nil, nil
	}
	for _, of := range r.Arrivals {
		names, err := of.Missing(ctx, r.Live, cluster.Namespace)
		if err != nil {
			return nil, err
		}
		missing = append(missing, names...)
	}
	if len(missing) == 0 {
		r.arrived.Store(cluster.UID, true)
	}
	return missing, nil
}
