package machineupdate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drain"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/protection"
)

// sweepAgain is for how long a sweep that has failed is not tried again, in an API server that takes its time to fail.
const sweepAgain = 10 * time.Second

// sweepState says how the sweep of a cluster has ended. Each cluster has one of its own, so that one that does not answer keeps
// nobody waiting in the others.
type sweepState struct {
	// turn is had by who sweeps. Who waits for it, unlike for a mutex, can give up.
	turn chan struct{}
	last atomic.Pointer[sweepEnd]
	// unleased are the names of the Nodes of which the sweep has found no lease, until this process makes one.
	unleased sync.Map
}

// sweepEnd is how a sweep has ended, and when.
type sweepEnd struct {
	err error
	at  time.Time
}

// stands reports whether the end of a sweep is the answer for now: a success for good, a failure for a while.
func (e *sweepEnd) stands(now time.Time) bool {
	if e == nil || e.err == nil {
		return e != nil
	}
	age := now.Sub(e.at)
	return age >= 0 && age < sweepAgain // the clock may have been put back
}

// enter waits for the turn, and reports whether it has it. If somebody sweeps a cluster that has failed before, it does not wait but
// returns how that was: one who finds out whether the cluster answers again is enough, and all others would be workers that other
// clusters lack.
func (s *sweepState) enter(ctx context.Context) (bool, error) {
	select {
	case s.turn <- struct{}{}:
		return true, nil
	default:
	}
	if last := s.last.Load(); last != nil {
		return false, last.err
	}
	select {
	case s.turn <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// sweep takes away what an earlier process has left behind in the update's cluster on nodes where nothing is under way: leases, and
// what keeps others off. It does so once for each cluster, before this process acquires the first lease there: nothing of its own
// can be among it.
func (u *update) sweep(ctx context.Context) error {
	key := types.NamespacedName{Namespace: u.mu.Namespace, Name: u.regarding.Spec.ClusterName}
	state, _ := u.sweeps.LoadOrStore(key, &sweepState{turn: make(chan struct{}, 1)})
	cluster := state.(*sweepState)
	err := u.sweepOnce(ctx, key, cluster)
	if err == nil {
		_, u.unleased = cluster.unleased.LoadAndDelete(u.regarding.Status.NodeRef.Name)
	}
	return err
}

// sweepOnce does so unless that was done, or has failed a moment ago.
func (u *update) sweepOnce(ctx context.Context, key types.NamespacedName, cluster *sweepState) error {
	if last := cluster.last.Load(); last.stands(u.Clock.Now()) {
		return last.err
	}
	if entered, err := cluster.enter(ctx); !entered {
		return err
	}
	defer func() { <-cluster.turn }()
	if last := cluster.last.Load(); last.stands(u.Clock.Now()) {
		return last.err // of who had the turn before
	}
	err := u.sweepCluster(ctx, key, cluster)
	if ctx.Err() == nil { // else it says nothing about the cluster
		cluster.last.Store(&sweepEnd{err: err, at: u.Clock.Now()})
	}
	return err
}

// sweepCluster sweeps a cluster.
func (u *update) sweepCluster(ctx context.Context, key types.NamespacedName, cluster *sweepState) error {
	machines, err := u.machinesOf(ctx, key)
	if err != nil {
		return err
	}
	var errs []error
	swept, err := u.locker().Sweep(ctx, func(machine types.UID) bool {
		idle, err := u.idle(ctx, machines[machine])
		errs = append(errs, err)
		return idle
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("release what was left behind in cluster %s: %w", key, err)
	}
	for _, machine := range machines {
		if name := machine.Status.NodeRef.Name; swept.Absent(name) {
			cluster.unleased.Store(name, true)
		}
	}
	for _, machine := range machines {
		switch err := u.sweepMarkers(ctx, machine); {
		case isAny(err, protection.ErrRecord, drain.ErrOtherOwner):
			// Somebody has to look at this one Machine. The others of its cluster have nothing to do with it.
			u.Recorder.Eventf(policykind.Repeated(machine), nil, corev1.EventTypeWarning, "InPlaceUpdateLeftovers", "Sweep", "%s",
				policykind.Note("what an earlier update may have left behind can't be removed: "+err.Error()))
			ctrl.LoggerFrom(ctx).Info("Could not remove what was left behind at a Machine", "machine", client.ObjectKeyFromObject(machine), "reason", err.Error())
		case err != nil:
			return fmt.Errorf("remove what was left behind at Machine %s: %w", machine.Name, err)
		}
	}
	if len(swept.Released) > 0 {
		ctrl.LoggerFrom(ctx).Info("Released node leases that were left behind", "cluster", key, "leases", swept.Released)
	}
	return nil
}

// sweepMarkers takes away what keeps others off the node of a Machine, if the Machine says that there is something, and nothing is under
// way there.
func (u *update) sweepMarkers(ctx context.Context, machine *clusterv1.Machine) error {
	if machine.Annotations[protection.AddedAnnotation] == "" {
		return nil
	}
	if idle, err := u.idle(ctx, machine); !idle || err != nil {
		return err
	}
	subject := protection.Machine{ObjectKey: client.ObjectKeyFromObject(machine), UID: machine.UID}
	var n corev1.Node
	err := u.occupied.cluster.Client.Get(ctx, types.NamespacedName{Name: machine.Status.NodeRef.Name}, &n)
	switch {
	case machine.Status.NodeRef.Name == "", apierrors.IsNotFound(err):
		return u.protector().ReleaseMachine(ctx, subject)
	case err != nil:
		return err
	}
	var of refitv1.MachineUpdate
	if err := u.Live.Get(ctx, client.ObjectKeyFromObject(machine), &of); client.IgnoreNotFound(err) != nil {
		return err
	}
	d, p := u.drainer(), u.protector()
	d.Former = of.FormerMachineUIDs(machine.UID)
	p.Former = d.Former
	if err := d.Uncordon(ctx, drain.NodeRef{Name: n.Name, UID: n.UID}, machine.UID); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Took away what was left behind at a Machine", "machine", client.ObjectKeyFromObject(machine))
	return p.Release(ctx, subject, protection.Node{Name: n.Name, UID: n.UID})
}

// machinesOf returns the Machines of a cluster, by their UIDs.
func (u *update) machinesOf(ctx context.Context, cluster types.NamespacedName) (map[types.UID]*clusterv1.Machine, error) {
	var list clusterv1.MachineList
	if err := u.Client.List(ctx, &list, index.InCluster(cluster.Namespace, cluster.Name)); err != nil {
		return nil, fmt.Errorf("list the Machines of cluster %s: %w", cluster, err)
	}
	machines := map[types.UID]*clusterv1.Machine{}
	for i := range list.Items {
		machines[list.Items[i].UID] = &list.Items[i]
	}
	return machines, nil
}

// idle reports whether nothing of refit's is under way on the node of a Machine. It is false for nil, a Machine that is not known. It goes by
// the MachineUpdate of the Machine's name, whatever labels that has: anybody may edit them. One that begins just now may not be in the cache.
func (u *update) idle(ctx context.Context, machine *clusterv1.Machine) (bool, error) {
	if machine == nil {
		return false, nil
	}
	var mu refitv1.MachineUpdate
	switch err := u.Live.Get(ctx, client.ObjectKeyFromObject(machine), &mu); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read the MachineUpdate of Machine %s: %w", client.ObjectKeyFromObject(machine), err)
	}
	other := &update{mu: mu.Restored()}
	if owner := other.machineUID(); owner != "" && owner != machine.UID {
		return true, nil // it is of an earlier Machine of the name
	}
	return !other.underWay() && other.mu.Status.Node == nil, nil
}
