package machineupdate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/drain"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/machineupdate/flow"
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

// reach reaches the workload cluster, and removes there what was left behind.
func (u *update) reach(ctx context.Context) (*wait, error) {
	cluster, err := u.Workloads.Get(ctx, types.NamespacedName{Namespace: u.regarding.Namespace, Name: u.regarding.Spec.ClusterName})
	if err == nil {
		u.occupied.cluster = cluster
		err = u.sweep(ctx)
	}
	if err != nil {
		return u.away(u.recover(err))
	}
	u.seen.Workload = flow.Reached
	return nil, nil
}

// lock acquires the node's lease, and renews it until the reconciliation ends.
func (u *update) lock(ctx context.Context) (*wait, error) {
	held, err := u.locker().Acquire(ctx, lease.Request{
		Facts: u.facts, NodeUID: u.nodeUID(), Operation: "update", Step: u.mu.Status.Step,
		UnderWay: u.mu.Status.Node != nil || u.mu.Status.ApplyingSince != nil,
		Absent:   u.unleased,
	})
	if err != nil {
		return u.away(u.notAcquired(ctx, err))
	}
	u.occupied.held, u.seen.Leased = held, true
	u.noteSeen()
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

// away records that the update goes on without the workload cluster's API server, if it has nothing to wait for.
func (u *update) away(w *wait, err error) (*wait, error) {
	if w == nil && err == nil {
		u.seen.Workload = flow.Away
	}
	return w, err
}

// stopRenewal ends the renewal of a lease. Whether it is released was decided before.
func (u *update) stopRenewal() {
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

// readFor is for how long what was read serves once more, where it is read again before anything is done.
const readFor = 2 * time.Second

// facts are what the management cluster says of the node, at this time. Who asks first, before the lease is taken, gets what the reconciliation has
// read a moment ago: the look after that reads it again.
func (u *update) facts(ctx context.Context) (lease.Facts, error) {
	var facts lease.Facts
	if read := u.read; read != nil {
		if u.read = nil; u.Clock.Since(u.readAt) < readFor {
			return *read, nil
		}
	}
	machine, cluster := &clusterv1.Machine{}, &clusterv1.Cluster{}
	if u.proves {
		machine = u.regarding
	} else if err := u.Live.Get(ctx, client.ObjectKeyFromObject(u.mu), machine); err != nil {
		return facts, fmt.Errorf("read Machine %s: %w", u.mu.Name, err)
	}
	if machine.DeletionTimestamp.IsZero() && unasked(u.mu, machine) {
		return facts, standsOff{withdrawn()}
	}
	if w := taken(machine); w != nil && machine.DeletionTimestamp.IsZero() {
		return facts, standsOff{w}
	}
	key := clusterOf(machine)
	if err := u.Live.Get(ctx, key, cluster); err != nil {
		return facts, fmt.Errorf("read Cluster %s: %w", key, err)
	}
	u.marks.Machine = protection.MetadataOf(clusterv1.GroupVersion.WithKind("Machine"), &machine.ObjectMeta)
	return lease.Facts{Machine: machine, Cluster: cluster}, nil
}

// takeSlot takes one of the cluster's slots, or says why there is none.
func (u *update) takeSlot(ctx context.Context) (*wait, error) {
	return u.takeSlotAnd(ctx, func() error {
		return u.set(ctx, func(s *refitv1.MachineUpdateStatus) { s.Slot = &refitv1.Slot{TakenAt: u.now()} })
	})
}

// takeSlotAnd does so by what writes it, if there is one.
func (u *update) takeSlotAnd(ctx context.Context, write func() error) (*wait, error) {
	full, err := u.Slots.Take(ctx, u.regarding, u.mu, u.peers(), write)
	w, err := u.fullness(full, err)
	u.seen.Slot = w == nil && err == nil
	return w, err
}

// spared returns what a disturbance of the node waits for: others are ill, so that the cluster can't spare it although it has a slot. As
// long as nothing was changed on the node it is released then, with the slot: drained it would be one more that is out.
func (u *update) spared(ctx context.Context) (*wait, error) {
	if u.mu.Status.Slot == nil || u.occupied.cluster == nil || u.isOut() {
		return nil, nil
	}
	ask, message := u.Slots.MayBegin, "nothing was changed on the node yet, and it is released until the cluster can spare it: "
	changed := u.mu.Status.ApplyingSince != nil
	if changed {
		ask, message = u.Slots.MayGoOn, "the node may be half changed, so that it keeps its slot, and is not disturbed for now"+u.abandonOffer()+"; it waits for: "
	}
	w, err := u.fullness(ask(ctx, u.regarding, u.peers()))
	if w != nil && w.reason == refitv1.ReasonSlot {
		w.message, w.releases = message+w.message, !changed
	}
	return w, err
}

// abandonOffer returns how to free the slot of an update that does not go on.
func (u *update) abandonOffer() string {
	return fmt.Sprintf("; to free the slot without that: refit abandon -n %s %s", u.mu.Namespace, u.mu.Name)
}

// isOut reports whether the node is out already: refit has cordoned it, and it may be half changed. To go on with it makes nothing worse,
// and may be what mends it. A node of the control plane may be a member of etcd all the same.
func (u *update) isOut() bool {
	d := u.mu.Status.Drain
	return d != nil && d.Cordoned && u.mu.Status.ApplyingSince != nil &&
		changemanagement.RoleOf(u.regarding.Labels) != refitv1.ControlPlaneRole
}

func (u *update) peers() slots.Peers {
	return slots.WorkloadPeers{Client: u.occupied.cluster.Client, LeaseNamespace: u.LeaseNamespace, Clock: u.Clock}
}

// fullness is what an update waits for by what Slots say.
func (u *update) fullness(full *slots.Full, err error) (*wait, error) {
	switch {
	case errors.Is(err, slots.ErrPeers):
		return unanswered(err), nil
	case err != nil:
		return nil, err
	case full != nil:
		return &wait{reason: refitv1.ReasonSlot, message: full.Message, retry: full.RetryAfter}, nil
	default:
		return nil, nil
	}
}

// notAcquired returns what an update waits for whose node's lease could not be acquired.
func (u *update) notAcquired(ctx context.Context, err error) (*wait, error) {
	var held *lease.HeldError
	var clock *lease.ClockError
	var off standsOff
	switch {
	case errors.As(err, &held):
		return u.heldByOthers(ctx, held)
	case errors.As(err, &off):
		return off.wait, nil
	case errors.As(err, &clock):
		return &wait{reason: refitv1.ReasonLease, message: err.Error(), retry: retryNode}, nil
	case errors.Is(err, lease.ErrNoNode):
		return &wait{reason: refitv1.ReasonNode, message: err.Error() + "; the update waits for Cluster API to find it", retry: retryNode}, nil
	case errors.Is(err, lease.ErrNodeReplaced):
		w := &wait{
			reason: refitv1.ReasonNode, retry: retryNode,
			message: "the update stops: " + err.Error() + "; what was begun on the former one says nothing about this one, which is not touched",
		}
		if u.mu.Status.Node != nil {
			w.fails = replacedNode
		}
		return w, nil
	case isAny(err, lease.ErrMachineReplaced, lease.ErrNodeGone,
		protection.ErrMachineGone, protection.ErrDeleting, protection.ErrRecord, drain.ErrOtherOwner, drain.ErrNotCordoned):
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
// run there is taken to its end under the token that it has. The node refuses that when another has claimed it since. A registered updater that
// is at work goes on: it may have taken the API server's machine down, and only by being called brings it back.
func (u *update) recover(err error) (*wait, error) {
	if s := &u.mu.Status; s.ApplyingSince != nil && (s.Token > 0 || len(s.AtWork()) > 0) {
		return nil, nil
	}
	return unanswered(err), nil
}

// unanswered is what an update waits for when the workload cluster's API server does not answer as it should.
func unanswered(err error) *wait {
	return &wait{
		reason: refitv1.ReasonWorkload, retry: retryDefault,
		message: "the workload cluster can't be asked who has the node, so the node is not touched: " + err.Error(),
	}
}

// heldByOthers releases the node to whoever holds it, when what runs there has ended. What was not begun begins again, with all questions,
// when the node is free.
func (u *update) heldByOthers(ctx context.Context, held *lease.HeldError) (*wait, error) {
	w := &wait{reason: refitv1.ReasonHold, message: held.Message, retry: retryNode, releases: true}
	if held.Holds[0].Kind == lease.NodeLease {
		w.reason = refitv1.ReasonLease
	}
	if u.mu.Status.Node != nil && u.mu.Status.Reason != w.reason {
		w.message = "the update stops for now: " + w.message
		u.tellHolder(ctx, held)
	}
	return w, nil
}

// may reports whether a step may start, by the lease and by what others want of the node.
func (u *update) may(ctx context.Context, disruptive bool) (*wait, error) {
	if w := u.mayByLease(disruptive); w != nil {
		return w, nil
	}
	look := u.occupied.held.Check
	if u.proves {
		look = u.occupied.held.CheckSeen
	}
	if err := look(ctx); err != nil {
		return u.stepError(ctx, err, disruptive)
	}
	u.noteSeen()
	return nil, nil
}

// noteSeen takes the Node for its marks as the last look has seen it.
func (u *update) noteSeen() {
	if n, _ := u.occupied.held.Seen(); n != nil {
		u.marks.Node = protection.MetadataOf(corev1.SchemeGroupVersion.WithKind("Node"), &n.ObjectMeta)
	}
}

// mayByLease reports whether a step may start by the lease, which asks nobody.
func (u *update) mayByLease(disruptive bool) *wait {
	held := u.occupied.held
	if held == nil {
		return apiAway()
	}
	if err := held.Allows(disruptive); err != nil {
		return lost(err)
	}
	return nil
}

// check asks whether the next step may start. Where that is to mark Machine and Node, what they say was looked at when the lease was taken, and they need
// not be read again: the marks are refused if they have changed since, and then all is asked once more.
func (u *update) check(ctx context.Context) (*wait, error) {
	u.proves = u.provable()
	w, err := u.may(ctx, !u.seen.InProgress())
	u.proves = false
	u.seen.Allowed = w == nil && err == nil
	u.checked = true
	return w, err
}

// provable reports whether the next that is done is to mark Machine and Node, and both are known as they were read by this reconciliation.
func (u *update) provable() bool {
	n, s := u.mu.Status.Node, u.state()
	s.Allowed, s.Spared = true, true
	if c, _ := flow.Decide(s); u.checked || c != flow.Protect || n == nil || u.marks.Machine == nil || u.marks.Node == nil {
		return false
	}
	return u.marks.Machine.ResourceVersion == u.regarding.ResourceVersion && u.marks.Node.UID == n.UID
}

// spare asks whether the cluster can do without the node, and once more whether another version fits what the others run by now.
func (u *update) spare(ctx context.Context) (*wait, error) {
	w, err := u.spared(ctx)
	if w == nil && err == nil {
		w, err = u.skewed(ctx, u.plan)
	}
	u.seen.Spared = w == nil && err == nil
	return w, err
}

// stepError returns what a step waits for in whose way err is. It returns nil if the step may go on without what could not be asked
// for, which one that disturbs may not.
func (u *update) stepError(ctx context.Context, err error, disruptive bool) (*wait, error) {
	w, other := u.notAcquired(ctx, err)
	if w == nil && other == nil && disruptive {
		return unanswered(err), nil
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
	return &wait{reason: refitv1.ReasonLease, message: err.Error() + "; refit acquires it again before anything else is done", retry: 2 * time.Second}
}
