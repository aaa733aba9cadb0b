package machineupdate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/session"
	"github.com/capi-refit/refit/internal/shard"
)

// How long an update waits after an error, at first and at most: a node may wait for a login, and puts its work back without one.
const (
	leastBackoff = 5 * time.Millisecond
	mostBackoff  = time.Minute
)

// NewSessions returns the sessions of updates, with how many there are at most at once, and of one cluster.
func NewSessions(most, mostOfCluster int) *session.Queue {
	return session.NewQueue(most, mostOfCluster, leastBackoff, mostBackoff)
}

// workers is how many updates the queue looks at together, without what talks to their nodes and workload clusters.
const workers = 50

// Announcer tells when what is read from a namespace says something else, after whoever asks is answered by it.
type Announcer interface {
	OnChange(f func(namespace string))
}

// Edits tell when policies about windows and budgets say something else in a namespace, or with "" in all, after whoever asks is answered by it.
type Edits interface {
	// OnChange has f called then. concerns reports whether that may be for Machines of a Cluster with labels.
	OnChange(f func(namespace string, concerns func(cluster labels.Set) bool))
}

// SetupWithManager has the manager run the Reconciler, and its sessions.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	for _, a := range r.Announcers {
		a.OnChange(func(namespace string) {
			r.Sessions.Add(r.thatWait(context.Background(), client.InNamespace(namespace))...)
		})
	}
	if r.Windows != nil {
		r.Windows.OnChange(r.wakeForEdit)
	}
	if r.Health != nil {
		r.Health.OnChange(r.wakeForHealth)
	}
	b := ctrl.NewControllerManagedBy(mgr).
		For(&refitv1.MachineUpdate{}).
		Watches(&refitv1.NodeAccess{}, handler.EnqueueRequestsFromMapFunc(r.waiting), builder.WithPredicates(otherSpec)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.waitingForCluster), builder.WithPredicates(unpausedOrSays)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster), builder.WithPredicates(pausedOrNot)).
		WatchesMetadata(&clusterv1.MachineDeployment{}, handler.EnqueueRequestsFromMapFunc(r.waitingForOwner), builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(sameName), builder.WithPredicates(saysOrGoes)).
		Watches(&refitv1.MachineUpdate{}, handler.EnqueueRequestsFromMapFunc(r.waitingForSlot), builder.WithPredicates(slotFreed)).
		Watches(&refitv1.MachineUpdate{}, handler.EnqueueRequestsFromMapFunc(r.wakeForBudget), builder.WithPredicates(budgetFreed)).
		WatchesRawSource(r.Sessions.Source()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](leastBackoff, mostBackoff),
		})
	shard.Forget(mgr, append(r.byUpdate(), &r.sweeps)...)
	if r.WatchSecrets {
		b = b.WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.waitingForSecret), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{}))
	}
	return errors.Join(mgr.Add(r.Sessions), shard.Complete(mgr, b, r, &refitv1.MachineUpdateList{}))
}

// says passes on changes of what policies read: by labels they select, and annotations override them.
var says = predicate.Or[client.Object](predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})

// otherSpec passes on what comes, goes, or has another spec, and not that a status was written.
var otherSpec predicate.Predicate = predicate.GenerationChangedPredicate{}

// saysOrGoes passes on changes of Machines by which their nodes may be touched, or no longer may.
var saysOrGoes = predicate.Or[client.Object](says, predicate.NewPredicateFuncs(func(o client.Object) bool {
	return !o.GetDeletionTimestamp().IsZero()
}))

func sameName(_ context.Context, obj client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(obj)}}
}

var unpausedOrSays = predicate.Or[client.Object](says, unpaused)

// unpaused passes on that a Cluster is no longer paused.
var unpaused = clusterChanged(func(before, after *clusterv1.Cluster) bool {
	return annotations.IsPaused(before, before) && !annotations.IsPaused(after, after)
})

// pausedOrNot passes on that a Cluster is paused, or no longer is.
var pausedOrNot = clusterChanged(func(before, after *clusterv1.Cluster) bool {
	return ptr.Deref(before.Spec.Paused, false) != ptr.Deref(after.Spec.Paused, false)
})

// clusterChanged passes on what has changed of a Cluster, and nothing else.
func clusterChanged(counts func(before, after *clusterv1.Cluster) bool) predicate.Funcs {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*clusterv1.Cluster)
			after, ok2 := e.ObjectNew.(*clusterv1.Cluster)
			return ok && ok2 && counts(before, after)
		},
	}
}

// ofCluster returns the MachineUpdates of a Cluster: each shows whether it is paused.
func (r *Reconciler) ofCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	var list refitv1.MachineUpdateList
	if err := r.Client.List(ctx, &list, index.InCluster(cluster.GetNamespace(), cluster.GetName())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Could not list MachineUpdates")
		return nil
	}
	requests := make([]ctrl.Request, len(list.Items))
	for i := range list.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return requests
}

// waiting returns the MachineUpdates that a change of an object in their namespace may have go on: a NodeAccess.
func (r *Reconciler) waiting(ctx context.Context, obj client.Object) []ctrl.Request {
	return r.thatWait(ctx, client.InNamespace(obj.GetNamespace()))
}

// waitingForCluster returns the MachineUpdates that a change of their Cluster may have go on.
func (r *Reconciler) waitingForCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	return r.thatWait(ctx, index.InCluster(cluster.GetNamespace(), cluster.GetName()))
}

// waitingForOwner returns the MachineUpdates that a change of a MachineDeployment in their Cluster may have go on.
func (r *Reconciler) waitingForOwner(ctx context.Context, owner client.Object) []ctrl.Request {
	return r.thatWait(ctx, index.InCluster(owner.GetNamespace(), owner.GetLabels()[clusterv1.ClusterNameLabel]))
}

// secretReasons are the reasons to wait that another content of a Secret may end: a key, a kubeconfig, the content of a file.
var secretReasons = []string{
	refitv1.ReasonNodeAccess, refitv1.ReasonSpecs, refitv1.ReasonWorkload, refitv1.ReasonHostKey, refitv1.ReasonUnreachable,
}

// waitingForSecret returns the MachineUpdates that a change of a Secret in their namespace may have go on.
func (r *Reconciler) waitingForSecret(ctx context.Context, secret client.Object) []ctrl.Request {
	return r.thatWaitFor(ctx, func(reason string) bool { return slices.Contains(secretReasons, reason) }, client.InNamespace(secret.GetNamespace()))
}

// slotFreed allows that a MachineUpdate no longer has a slot.
var slotFreed = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*refitv1.MachineUpdate)
		after, ok2 := e.ObjectNew.(*refitv1.MachineUpdate)
		return ok && ok2 && before.Status.Slot != nil && after.Status.Slot == nil
	},
}

// budgetFreed passes on that a MachineUpdate no longer counts against budgets.
var budgetFreed = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	DeleteFunc: func(e event.DeleteEvent) bool {
		mu, ok := e.Object.(*refitv1.MachineUpdate)
		return ok && (changemanagement.Runs(mu) || changemanagement.HasFailed(mu))
	},
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*refitv1.MachineUpdate)
		after, ok2 := e.ObjectNew.(*refitv1.MachineUpdate)
		return ok && ok2 && (changemanagement.Runs(before) && !changemanagement.Runs(after) || changemanagement.HasFailed(before) && !changemanagement.HasFailed(after))
	},
}

// wakened is how many updates look at once whether what is free now is theirs. The others look by themselves.
const wakened = 10

// coalesced is for how long budgets that are freed are gathered: many updates end at once.
const coalesced = 500 * time.Millisecond

// wakeForBudget has those of the same namespace be looked at that may start now. It enqueues nothing itself.
func (r *Reconciler) wakeForBudget(ctx context.Context, obj client.Object) []ctrl.Request {
	namespace := obj.GetNamespace()
	if !r.Shards.Holds(namespace) {
		return nil
	}
	if _, due := r.freed.LoadOrStore(namespace, true); due || r.Budgets == nil {
		return nil
	}
	time.AfterFunc(coalesced, func() {
		r.freed.Delete(namespace)
		next, err := r.Budgets.Next(context.WithoutCancel(ctx), namespace, wakened)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Could not find whom a budget lets start; they look again by themselves", "namespace", namespace)
		}
		for _, key := range next {
			r.Sessions.Add(ctrl.Request{NamespacedName: key})
		}
	})
	return nil
}

// waitingForSlot returns the MachineUpdates of the same cluster that wait for a slot, those first that have waited longest.
func (r *Reconciler) waitingForSlot(ctx context.Context, obj client.Object) []ctrl.Request {
	var list refitv1.MachineUpdateList
	if err := r.Client.List(ctx, &list, index.InCluster(obj.GetNamespace(), obj.GetLabels()[clusterv1.ClusterNameLabel])); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Could not list MachineUpdates")
		return nil
	}
	waiting := slices.DeleteFunc(list.Items, func(mu refitv1.MachineUpdate) bool {
		return mu.Status.Phase != refitv1.PhaseWaiting || mu.Status.Reason != refitv1.ReasonSlot || mu.Status.StartedAt == nil
	})
	slices.SortFunc(waiting, func(a, b refitv1.MachineUpdate) int {
		return cmp.Or(a.Status.StartedAt.Compare(b.Status.StartedAt.Time), cmp.Compare(a.Name, b.Name))
	})
	var requests []ctrl.Request
	for _, mu := range waiting[:min(len(waiting), wakened)] {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&mu)})
	}
	return requests
}
