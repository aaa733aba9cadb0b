package pending

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/shard"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines;clusters;machinedeployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=*,verbs=get;list;watch
// +kubebuilder:rbac:groups=capi-refit.dev,resources=pendingchanges,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=capi-refit.dev,resources=pendingchanges/status,verbs=update

// SetupWithManager has the manager keep the view.
func (v *View) SetupWithManager(mgr ctrl.Manager) error {
	byCluster := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []ctrl.Request {
		name := obj.GetLabels()[clusterv1.ClusterNameLabel]
		if name == "" {
			return nil
		}
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
	})
	v.heedPolicies()
	// What was deleted by somebody is made again.
	deleted := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("pending").For(&clusterv1.Cluster{}).
		Watches(&clusterv1.Machine{}, byCluster, builder.WithPredicates(unsettled())).
		Watches(&refitv1.MachineUpdate{}, byCluster, builder.WithPredicates(unsettled())).
		Watches(&refitv1.PendingChange{}, byCluster, builder.WithPredicates(deleted)).
		Watches(&refitv1.ChangeManagementPolicy{}, handler.EnqueueRequestsFromMapFunc(v.waiting), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&refitv1.ClusterChangeManagementPolicy{}, handler.EnqueueRequestsFromMapFunc(v.waiting), builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	if v.Owners.Asker != nil {
		if m, ok := mgr.(shard.Manager); ok {
			v.shards = m.Shards
			m.Shards.OnAcquire(v.Owners.questions.forgetAll)
		}
		v.woken = make(chan event.GenericEvent)
		b = b.WatchesRawSource(source.Channel(v.woken, &handler.EnqueueRequestForObject{}))
		if err := mgr.Add(manager.RunnableFunc(v.askRegistered)); err != nil { // the leader's, as the view is
			return fmt.Errorf("add what asks registered updaters: %w", err)
		}
	}
	return shard.Complete(mgr, b, v, &clusterv1.ClusterList{})
}

// unsettled passes what has come to be wanted, or is no longer.
func unsettled() predicate.Predicate {
	is := func(obj client.Object) bool { return len(index.ByUnsettled(obj)) > 0 }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return is(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return is(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return is(e.ObjectOld) != is(e.ObjectNew) || is(e.ObjectNew) && phase(e.ObjectOld) != phase(e.ObjectNew)
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// phase returns what of a MachineUpdate is shown.
func phase(obj client.Object) string {
	if mu, ok := obj.(*refitv1.MachineUpdate); ok {
		return string(mu.Status.Phase) + " " + mu.Status.Reason
	}
	return ""
}

// waiting returns the Clusters of an object's namespace, or of all if it has none, at which something waits.
func (v *View) waiting(ctx context.Context, obj client.Object) []ctrl.Request {
	var list refitv1.PendingChangeList
	if err := v.Client.List(ctx, &list, client.InNamespace(obj.GetNamespace())); err != nil {
		return nil // out of a cache, and so for want of its kind only
	}
	var out []ctrl.Request
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.Owner.Kind == "Cluster" {
			out = append(out, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.Cluster}})
		}
	}
	return out
}

// Reconcile writes the PendingChanges of a Cluster. What has not changed is not written.
func (v *View) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cluster clusterv1.Cluster
	if err := v.Client.Get(ctx, req.NamespacedName, &cluster); err != nil {
		v.rouse(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err) // they go with their owners
	}
	if wait, err := v.resting(ctx, &cluster); err != nil || wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, err
	}
	began := v.Clock.Now()
	seen, err := v.see(ctx, req.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	wanted := objects(seen.at, &cluster, seen.waiting[req.Name])
	late, err := v.writeAll(ctx, seen.at, req, wanted)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: time.Second}, nil // the cache does not know yet what was written before
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if late {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	v.rest(req, seen, len(wanted))
	return ctrl.Result{RequeueAfter: next(began, seen, len(wanted) > 0)}, nil
}

// writeAll writes the PendingChanges of a Cluster, and deletes those that are there for nothing. Late reports that one was written a moment ago, and is
// to be written later.
func (v *View) writeAll(ctx context.Context, now time.Time, req ctrl.Request, wanted []*refitv1.PendingChange) (late bool, err error) {
	before, err := v.writtenOf(ctx, req.NamespacedName)
	if err != nil {
		return false, err
	}
	for _, p := range wanted {
		err := v.write(ctx, now, p, before[p.Name])
		if err != nil && !errors.Is(err, errLate) {
			return false, err
		}
		late = late || err != nil
		delete(before, p.Name)
	}
	for _, p := range before {
		if err := v.delete(ctx, p); err != nil {
			return false, err
		}
	}
	return late, nil
}

// writtenOf returns the PendingChanges of a Cluster that are there, by name.
func (v *View) writtenOf(ctx context.Context, cluster types.NamespacedName) (map[string]*refitv1.PendingChange, error) {
	var list refitv1.PendingChangeList
	if err := v.Client.List(ctx, &list, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PendingChanges: %w", err)
	}
	all := map[string]*refitv1.PendingChange{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all, nil
}

// errLate says that something is to be written later.
var errLate = errors.New("it was written a moment ago")

// delete deletes a PendingChange, and no other one of its name.
func (v *View) delete(ctx context.Context, p *refitv1.PendingChange) error {
	v.mu.Lock()
	delete(v.written, client.ObjectKeyFromObject(p))
	v.mu.Unlock()
	if err := v.Client.Delete(ctx, p, client.Preconditions{UID: &p.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete PendingChange %s: %w", client.ObjectKeyFromObject(p), err)
	}
	return nil
}

// next returns when to look again: when there may be another view, if this one is older than what has had it asked for; else only if something waits.
func next(began time.Time, seen *sight, waits bool) time.Duration {
	switch {
	case seen.at.Before(began):
		return max(seen.again.Sub(began), time.Second)
	case waits:
		return max(seen.again.Sub(began), refresh)
	default:
		return 0
	}
}

// write writes a PendingChange, if it says something else than before.
func (v *View) write(ctx context.Context, now time.Time, p, before *refitv1.PendingChange) error {
	status := p.Status
	if before != nil && !belongs(p, before) { // another object of the name, or an owner of the name that was made again
		if err := v.delete(ctx, before); err != nil {
			return err
		}
		before = nil
	}
	if before == nil {
		if err := v.Client.Create(ctx, p); err != nil {
			return fmt.Errorf("create PendingChange %s: %w", client.ObjectKeyFromObject(p), err)
		}
		p.Status = status
	} else {
		settle(now, &status, &before.Status)
		if equality.Semantic.DeepEqual(status, before.Status) {
			return nil
		}
		if causeOf(&status) == causeOf(&before.Status) && v.justWritten(p) {
			return errLate
		}
		p = before.DeepCopy()
		p.Status = status
	}
	if err := v.Client.Status().Update(ctx, p); err != nil {
		return fmt.Errorf("write the status of PendingChange %s: %w", client.ObjectKeyFromObject(p), err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.written == nil {
		v.written = map[types.NamespacedName]time.Time{}
	}
	v.written[client.ObjectKeyFromObject(p)] = v.Clock.Now()
	maps.DeleteFunc(v.written, func(_ types.NamespacedName, at time.Time) bool { return v.Clock.Since(at) > writtenAtMost })
	return nil
}

// causeOf is the cause that a status tells; none if it was not written yet.
func causeOf(st *refitv1.PendingChangeStatus) string {
	if c := apimeta.FindStatusCondition(st.Conditions, refitv1.ChangePendingCondition); c != nil {
		return c.Reason
	}
	return ""
}

const (
	// writeEach is how long after one, on the average, another of those is written that say something else all the time: five a second, however many there are.
	writeEach = 200 * time.Millisecond
	// writtenAtMost is how long one of them says what is no longer so.
	writtenAtMost = 2 * time.Minute
)

// justWritten reports whether a PendingChange was written a moment ago: while a change goes through a fleet, it says something else all the time.
func (v *View) justWritten(p *refitv1.PendingChange) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	at, ok := v.written[client.ObjectKeyFromObject(p)]
	return ok && v.Clock.Since(at) < min(max(refresh-again, time.Duration(len(v.written))*writeEach), writtenAtMost)
}

// belongs reports whether a PendingChange that is there is for the same owner.
func belongs(p, there *refitv1.PendingChange) bool {
	return p.Spec == there.Spec && equality.Semantic.DeepEqual(p.OwnerReferences, there.OwnerReferences)
}
