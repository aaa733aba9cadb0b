package machineupdate

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drain"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/protection"
)

// releaseNode takes away what refit has put on the node, and releases its lease. It can be repeated.
func (u *update) releaseNode(ctx context.Context, keepCordon bool) error {
	n, held := u.mu.Status.Node, u.occupied.held
	if n == nil && held == nil && u.mu.Status.ApplyingSince == nil {
		return nil
	}
	if err := u.reachWorkload(ctx); err != nil {
		return err
	}
	if n != nil {
		if err := u.releaseMarkers(ctx, *n, keepCordon); err != nil {
			return err
		}
	}
	if held != nil {
		u.stopRenewal()
		u.occupied.held = nil
		if err := held.Release(ctx); err != nil && !errors.Is(err, lease.ErrLost) {
			return err
		}
		u.noteLease(held)
		return nil
	}
	// The lease is that of an earlier reconciliation.
	if name := u.nodeName(); name != "" {
		return u.locker().Release(ctx, name, u.machineUID())
	}
	_, err := u.locker().Sweep(ctx, func(machine types.UID) bool { return machine == u.machineUID() })
	return err
}

// releaseMarkers takes away what keeps others off the node, unless another server goes on with it.
func (u *update) releaseMarkers(ctx context.Context, n refitv1.NodeReference, keepCordon bool) error {
	if err := u.fenceOthers(ctx, keepCordon); err != nil {
		return err
	}
	if err := u.removeMarkers(ctx, n, keepCordon); err != nil {
		return fmt.Errorf("release Node %s: %w", n.Name, err)
	}
	return nil
}

// removeMarkers takes away what keeps others off the node. Its cordon stays while somebody else has the node: pods would come to what is
// being maintained.
func (u *update) removeMarkers(ctx context.Context, n refitv1.NodeReference, keepCordon bool) error {
	if !keepCordon {
		if u.mu.Status.Drain != nil && u.occupied.held == nil {
			if err := u.locker().CheckFree(ctx, n.Name, append(u.formerUIDs(), u.machineUID())...); err != nil {
				return fmt.Errorf("it stays cordoned: %w", err)
			}
		}
		if err := u.uncordon(ctx, n); err != nil {
			return err
		}
	}
	return u.protector().Release(ctx, u.subject(), protection.Node(n))
}

// uncordon takes refit's cordon off, if there is one. None was put on where no drain has begun, and the Node, as it was read since the work, shows none.
func (u *update) uncordon(ctx context.Context, n refitv1.NodeReference) error {
	if known := u.marks.Node; known != nil && u.mu.Status.Drain == nil && u.seen.Brought && known.UID == n.UID {
		if _, cordoned := known.Annotations[drain.CordonedAnnotation]; !cordoned {
			return nil
		}
	}
	u.marks.Node = nil // it may be written
	return u.drainer().Uncordon(ctx, drain.NodeRef(n), u.machineUID())
}

// fenceOthers returns a conflict if another server goes on with the node. That the pods which left the node may come back is recorded before
// it is uncordoned: who has read the MachineUpdate before that can't record any more that the work begins, and who reads it after that drains
// the node again.
func (u *update) fenceOthers(ctx context.Context, keepCordon bool) error {
	d := u.mu.Status.Drain
	if u.overtaken || keepCordon || d == nil || d.FinishedAt == nil {
		return u.latest(ctx)
	}
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) { s.Drain = restartedDrain(d, u.now()) })
}

// latest returns a conflict if somebody else has written since the MachineUpdate was read: another server goes on with the node then, and
// the cordon is its own. releaseOvertaken has looked itself.
func (u *update) latest(ctx context.Context) error {
	if u.overtaken {
		return nil
	}
	var now refitv1.MachineUpdate
	err := u.Live.Get(ctx, client.ObjectKeyFromObject(u.mu), &now)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read the update before its node is released: %w", err)
	case now.ResourceVersion != u.mu.ResourceVersion:
		return apierrors.NewConflict(refitv1.GroupVersion.WithResource("machineupdates").GroupResource(), u.mu.Name,
			errors.New("another server has written since, and goes on with the node"))
	}
	return nil
}

// nodeName is the Node that the update has begun with, or that the Machine has. It is empty when neither is known: the Machine is gone.
func (u *update) nodeName() string {
	switch {
	case u.mu.Status.Node != nil:
		return u.mu.Status.Node.Name
	case u.regarding != nil:
		return u.regarding.Status.NodeRef.Name
	default:
		return ""
	}
}

// releaseOvertaken takes away what this reconciliation has put on the node when nobody comes back for it: another server has ended the
// update meanwhile, or has released the node.
func (u *update) releaseOvertaken(ctx context.Context) error {
	if u.occupied.held == nil {
		return nil
	}
	var now refitv1.MachineUpdate
	err := u.Live.Get(ctx, client.ObjectKeyFromObject(u.mu), &now)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read what another has made of the update: %w", err)
	}
	now, u.overtaken = *now.Restored(), true
	if (now.Status.Node != nil || len(now.Status.AtWork()) > 0) && !finished(&now) && !beingMoved(&now) {
		return nil // whoever goes on needs it
	}
	// Where it was moved to, it goes on with a node that is drained.
	moved := err != nil || beingMoved(&now)
	return u.releaseNode(ctx, now.Status.Node != nil || moved && (u.mu.Status.ApplyingSince != nil || u.mu.Status.Drain != nil))
}
