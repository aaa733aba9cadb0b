package machineupdate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drain"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/internal/slots"
	"github.com/capi-refit/refit/internal/workload"
)

// retryNode is how long an update waits before it looks again whether a node that somebody else holds is free.
const retryNode = 15 * time.Second

// Workloads reaches the API servers of workload clusters.
type Workloads interface {
	Get(ctx context.Context, cluster client.ObjectKey) (*workload.Cluster, error)
}

// occupancy is what makes a node refit's for the time of a reconciliation.
type occupancy struct {
	cluster *workload.Cluster
	// held is nil while the workload cluster's API server is away and a run on the node is only taken to its end.
	held *lease.Held
	// stop ends the renewal.
	stop func()
}

// occupy makes the node refit's: a slot if the update disturbs it, then the lease. It returns what the update waits for when
// that can't be.
func (u *update) occupy(ctx context.Context, machine *clusterv1.Machine) (*wait, error) {
	cluster, err := u.Workloads.Get(ctx, types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.ClusterName})
	if err != nil {
		return u.recover(err)
	}
	u.occupied.cluster = cluster
	if err := u.sweep(ctx); err != nil {
		return u.recover(err)
	}
	if u.closed == nil && u.mu.Status.Plan != nil && u.mu.Status.Plan.Material { // what a policy holds back takes no slot from others
		if w, err := u.takeSlot(ctx, machine); w != nil || err != nil {
			return w, err
		}
	}
	held, err := u.locker().Acquire(ctx, lease.Request{
		Facts: u.facts, NodeUID: u.nodeUID(), Operation: "update", Step: u.mu.Status.Step,
		UnderWay: u.mu.Status.Node != nil || u.mu.Status.ApplyingSince != nil,
	})
	if err != nil {
		return u.notAcquired(ctx, err)
	}
	u.occupied.held = held
	keep, cancel := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		if err := held.Keep(keep); err != nil {
			ctrl.LoggerFrom(ctx).Info("The node lease is lost", "reason", err.Error())
		}
	}()
	u.occupied.stop = func() { cancel(); <-kept }
	return nil, nil
}

// leave ends the renewal of a lease. Whether it is released was decided before.
func (u *update) leave() {
	if u.occupied.stop != nil {
		u.occupied.stop()
		u.occupied.stop = nil
	}
}

func (u *update) locker() *lease.Locker {
	return &lease.Locker{
		Client: u.occupied.cluster.Client, Namespace: u.LeaseNamespace, Clock: u.Clock, Observer: u.Observer, Instance: u.Instance,
	}
}

func (u *update) nodeUID() types.UID {
	if u.mu.Status.Node == nil {
		return ""
	}
	return u.mu.Status.Node.UID
}

// facts are what the management cluster says of the node, at this time.
func (u *update) facts(ctx context.Context) (lease.Facts, error) {
	var facts lease.Facts
	machine, cluster := &clusterv1.Machine{}, &clusterv1.Cluster{}
	if err := u.Live.Get(ctx, client.ObjectKeyFromObject(u.mu), machine); err != nil {
		return facts, fmt.Errorf("read Machine %s: %w", u.mu.Name, err)
	}
	if machine.DeletionTimestamp.IsZero() && unasked(u.mu, machine) {
		return facts, errWithdrawn
	}
	key := types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
	if err := u.Live.Get(ctx, key, cluster); err != nil {
		return facts, fmt.Errorf("read Cluster %s: %w", key, err)
	}
	return lease.Facts{Machine: machine, Cluster: cluster}, nil
}

// takeSlot takes one of the cluster's slots, or says why there is none.
func (u *update) takeSlot(ctx context.Context, machine *clusterv1.Machine) (*wait, error) {
	peers := slots.WorkloadPeers{Client: u.occupied.cluster.Client, LeaseNamespace: u.LeaseNamespace, Clock: u.Clock}
	full, err := u.Slots.Take(ctx, machine, u.mu, peers, func() error {
		return u.set(ctx, func(s *refitv1.MachineUpdateStatus) { s.Slot = &refitv1.Slot{TakenAt: u.now()} })
	})
	switch {
	case errors.Is(err, slots.ErrPeers):
		return u.unanswered(err)
	case err != nil:
		return nil, err
	case full != nil:
		return &wait{reason: refitv1.ReasonSlot, message: full.Message, retry: full.RetryAfter}, nil
	default:
		return nil, nil
	}
}

// notAcquired says what an update waits for whose node's lease could not be acquired.
func (u *update) notAcquired(ctx context.Context, err error) (*wait, error) {
	var held *lease.HeldError
	var clock *lease.ClockError
	switch {
	case errors.As(err, &held):
		return u.yield(ctx, held)
	case errors.Is(err, errWithdrawn):
		return withdrawn(), nil
	case errors.As(err, &clock):
		return &wait{reason: refitv1.ReasonLease, message: err.Error(), retry: retryNode}, nil
	case errors.Is(err, lease.ErrNoNode):
		return &wait{reason: refitv1.ReasonNode, message: err.Error() + "; the update waits for Cluster API to find it", retry: retryNode}, nil
	case errors.Is(err, lease.ErrNodeReplaced):
		return &wait{
			reason: refitv1.ReasonNode, replaced: u.mu.Status.Node != nil, retry: retryNode,
			message: "the update stops: " + err.Error() + "; what was begun on the former one says nothing about this one, which is not touched",
		}, nil
	case isAny(err, lease.ErrMachineReplaced, lease.ErrNodeGone,
		protection.ErrMachineGone, protection.ErrDeleting, drain.ErrOtherOwner, drain.ErrNotCordoned):
		return &wait{reason: refitv1.ReasonNode, message: "the update stops: " + err.Error(), retry: retryNode}, nil
	case client.IgnoreNotFound(err) == nil:
		return nil, err
	default:
		return u.recover(err)
	}
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// recover goes on without the workload cluster's API server, if what is under way on the node may be what keeps it away: the
// run there is taken to its end under the token that it has. The node refuses that when another has claimed it since.
func (u *update) recover(err error) (*wait, error) {
	if u.mu.Status.ApplyingSince != nil && u.mu.Status.Token > 0 {
		return nil, nil
	}
	return u.unanswered(err)
}

// unanswered is what an update waits for when the workload cluster's API server does not answer as it should.
func (u *update) unanswered(err error) (*wait, error) {
	return &wait{
		reason: refitv1.ReasonWorkload, retry: retryDefault,
		message: "the workload cluster can't be asked who has the node, so the node is not touched: " + err.Error(),
	}, nil
}

// yield leaves the node to whoever holds it, when what runs there has ended. What was not begun is begun anew, with all questions,
// when the node is free.
func (u *update) yield(ctx context.Context, held *lease.HeldError) (*wait, error) {
	w := &wait{reason: refitv1.ReasonHold, message: held.Message, retry: retryNode, yields: true}
	if held.Holds[0].Kind == lease.NodeLease {
		w.reason = refitv1.ReasonLease
	}
	if u.mu.Status.Node != nil && u.mu.Status.Reason != w.reason {
		w.message = "the update stops for now: " + w.message
		u.tellHolder(ctx, held)
	}
	return w, nil
}

// vacate takes what refit has put on the node away, and gives its lease back. It can be repeated.
func (u *update) vacate(ctx context.Context, keepCordon bool) error {
	n, held := u.mu.Status.Node, u.occupied.held
	if n == nil && held == nil && u.mu.Status.ApplyingSince == nil {
		return nil
	}
	if err := u.reachWorkload(ctx); err != nil {
		return err
	}
	if n != nil {
		if err := u.unmark(ctx, *n, keepCordon); err != nil {
			return fmt.Errorf("give Node %s back: %w", n.Name, err)
		}
	}
	if held != nil {
		u.leave()
		u.occupied.held = nil
		if err := held.Release(ctx); err != nil && !errors.Is(err, lease.ErrLost) {
			return err
		}
		return nil
	}
	// The lease is that of an earlier reconciliation.
	if name := u.nodeName(); name != "" {
		return u.locker().GiveBack(ctx, name, u.machineUID())
	}
	_, err := u.locker().Sweep(ctx, func(machine types.UID) bool { return machine == u.machineUID() })
	return err
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

// retreat takes away what this reconciliation has put on the node when nobody comes back for it: another server has ended the
// update meanwhile, or has left the node.
func (u *update) retreat(ctx context.Context) error {
	if u.occupied.held == nil {
		return nil
	}
	var now refitv1.MachineUpdate
	err := u.Live.Get(ctx, client.ObjectKeyFromObject(u.mu), &now)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read what another has made of the update: %w", err)
	}
	if now.Status.Node != nil && !finished(&now) {
		return nil // whoever goes on needs it
	}
	return u.vacate(ctx, now.Status.Node != nil)
}

// may says whether a step may start, by the lease and by what others want of the node.
func (u *update) may(ctx context.Context, disruptive bool) (*wait, error) {
	held := u.occupied.held
	if held == nil {
		return apiAway(), nil
	}
	if err := held.Allows(disruptive); err != nil {
		return lost(err), nil
	}
	if err := held.Check(ctx); err != nil {
		return u.hindrance(ctx, err, disruptive)
	}
	return nil, nil
}

// hindrance says what a step waits for in whose way err is. It returns nil if the step may go on without what could not be asked
// for, which one that disturbs may not.
func (u *update) hindrance(ctx context.Context, err error, disruptive bool) (*wait, error) {
	w, other := u.notAcquired(ctx, err)
	if w == nil && other == nil && disruptive {
		return u.unanswered(err)
	}
	return w, other
}

func apiAway() *wait {
	return &wait{
		reason: refitv1.ReasonWorkload, retry: retryDefault,
		message: "the workload cluster's API server is away; what is under way on the node may end, and nothing else starts until it is back",
	}
}

func lost(err error) *wait {
	return &wait{reason: refitv1.ReasonLease, message: err.Error() + "; refit acquires it anew before anything else is done", retry: 2 * time.Second}
}
