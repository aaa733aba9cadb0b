package holds

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/internal/shard"
	"github.com/capi-refit/refit/internal/workload"
)

// lookAgain is when something is tried again that could not be done.
const lookAgain = 30 * time.Second

// Workloads reaches the API servers of workload clusters.
type Workloads interface {
	Get(ctx context.Context, cluster client.ObjectKey) (*workload.Cluster, error)
}

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines;clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=patch

// Sweeper takes away what refit hold has put on Machines, on Nodes and on leases, when the hold has come to its end, or when somebody has
// removed its annotation by hand. It runs in the leader only.
type Sweeper struct {
	// Client reads from a cache.
	Client client.Client
	// Live reads from the API server.
	Live      client.Reader
	Workloads Workloads
	// LeaseNamespace is where node leases are; medik8s' if empty.
	LeaseNamespace string
	Clock          clock.Clock
}

// SetupWithManager has the manager run it.
func (s *Sweeper) SetupWithManager(mgr ctrl.Manager) error {
	has := func(o client.Object) bool { return protection.HasHold(o) }
	held := predicate.NewPredicateFuncs(has)
	return shard.Complete(mgr, ctrl.NewControllerManagedBy(mgr).Named("hold").For(&clusterv1.Machine{}, builder.WithPredicates(held)), s, &clusterv1.MachineList{}, has)
}

// Reconcile releases the hold of one Machine if it is over, and otherwise comes back when it is.
func (s *Sweeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var m clusterv1.Machine
	if err := s.Live.Get(ctx, req.NamespacedName, &m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !protection.HasHold(&m) {
		return ctrl.Result{}, nil
	}
	if over, in := s.over(&m); !over {
		return ctrl.Result{RequeueAfter: in}, nil
	}
	var cluster clusterv1.Cluster
	if err := s.Client.Get(ctx, clusterOf(&m), &cluster); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("read Cluster %s: %w", clusterOf(&m), err)
	}
	if annotations.IsPaused(&cluster, &m) { // it may be on its way to another management cluster
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	}
	return s.sweep(ctx, &m)
}

// over reports whether nobody holds the Machine any more, and otherwise in which time to look again; 0: when the Machine changes.
func (s *Sweeper) over(m *clusterv1.Machine) (over bool, in time.Duration) {
	hold, held := lease.PersonsHoldOf(m)
	if !held || !hold.Ends {
		return !held, 0
	}
	now := s.Clock.Now()
	return hold.Over(now), max(hold.Until.Sub(now), 0)
}

// sweep releases what a hold has at the node, and then what it has at the Machine, which says until then that there is something.
func (s *Sweeper) sweep(ctx context.Context, m *clusterv1.Machine) (ctrl.Result, error) {
	log := ctrl.LoggerFrom(ctx)
	switch released, err := s.releaseNode(ctx, m); {
	case err != nil && m.DeletionTimestamp.IsZero():
		log.Info("Could not release the node of a hold that is over; it is tried again", "reason", err.Error())
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	case err != nil: // the cluster may be going with the Machine, which must not wait for it
		log.Info("Left what a hold has at the node of a Machine that is being deleted", "reason", err.Error())
	case !released:
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	}
	changed := m.DeepCopy()
	for _, name := range []string{refitv1.HoldAnnotation, lease.HoldReasonAnnotation, lease.HoldByAnnotation} {
		delete(changed.Annotations, name)
	}
	if err := protection.UnholdMachine(changed); err != nil {
		return ctrl.Result{}, fmt.Errorf("release Machine %s, whose hold is over: %w", client.ObjectKeyFromObject(m), err)
	}
	err := s.Client.Patch(ctx, changed, client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: time.Second}, s.heldAgain(ctx, m)
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, fmt.Errorf("release Machine %s, whose hold is over: %w", client.ObjectKeyFromObject(m), err)
	}
	log.Info("Released a hold that is over", "by", m.Annotations[lease.HoldByAnnotation], "until", m.Annotations[refitv1.HoldAnnotation])
	return ctrl.Result{}, nil
}

// releaseNode releases the lease, and takes the markers from the Node. It reports whether it has: a lease that was renewed meanwhile says
// that the Machine is held again.
func (s *Sweeper) releaseNode(ctx context.Context, m *clusterv1.Machine) (bool, error) {
	node := m.Status.NodeRef.Name
	if node == "" {
		return true, nil
	}
	cluster, err := s.Workloads.Get(ctx, clusterOf(m))
	if err != nil {
		return false, err
	}
	if by := m.Annotations[lease.HoldByAnnotation]; by != "" {
		locker := &lease.Locker{Client: cluster.Client, Namespace: s.LeaseNamespace, Clock: s.Clock, Instance: "refit-holds"}
		over := true
		if _, lapsed := m.Annotations[refitv1.HoldAnnotation]; lapsed {
			over, err = locker.UnholdLapsed(ctx, node, by, func(ctx context.Context) (bool, error) { return s.stillOver(ctx, m) })
		} else {
			err = locker.Unhold(ctx, node, by)
		}
		if held := (*lease.HeldError)(nil); errors.As(err, &held) {
			err = nil // somebody else has it, and keeps it
		}
		if err != nil || !over {
			return false, err
		}
	}
	return true, (&protection.HeldNodes{Client: cluster.Client}).ReleaseNode(ctx, node)
}

// stillOver reports whether the hold of a Machine that was over still is. Who holds a Machine writes it before the lease.
func (s *Sweeper) stillOver(ctx context.Context, before *clusterv1.Machine) (bool, error) {
	var m clusterv1.Machine
	if err := s.Live.Get(ctx, client.ObjectKeyFromObject(before), &m); err != nil {
		return false, fmt.Errorf("read Machine %s again, whose hold is over: %w", client.ObjectKeyFromObject(before), err)
	}
	over, _ := s.over(&m)
	return over && m.Annotations[lease.HoldByAnnotation] == before.Annotations[lease.HoldByAnnotation], nil
}

// heldAgain puts the markers back on the Node of a Machine that was held again while they were taken away.
func (s *Sweeper) heldAgain(ctx context.Context, before *clusterv1.Machine) error {
	var m clusterv1.Machine
	if err := s.Live.Get(ctx, client.ObjectKeyFromObject(before), &m); err != nil {
		return client.IgnoreNotFound(err)
	}
	if over, _ := s.over(&m); over || m.Status.NodeRef.Name == "" {
		return nil
	}
	cluster, err := s.Workloads.Get(ctx, clusterOf(&m))
	if err != nil {
		return err
	}
	return (&protection.HeldNodes{Client: cluster.Client}).Mark(ctx, m.Status.NodeRef.Name, m.UID)
}

func clusterOf(m *clusterv1.Machine) types.NamespacedName {
	return types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClusterName}
}
