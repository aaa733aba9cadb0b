package machineupdate

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// forPolicies reports whether ChangeManagementPolicies can end a wait for a reason.
func forPolicies(reason string) bool {
	return slices.Contains([]string{refitv1.ReasonWindow, refitv1.ReasonBudget, refitv1.ReasonHealth}, reason)
}

// wakeForEdit has the MachineUpdates of a namespace be looked at that wait for policies: first those of the Clusters for which one of these says something
// else. Others may be thousands, and each takes a look that finds that it is still held back.
func (r *Reconciler) wakeForEdit(namespace string, concerns func(cluster labels.Set) bool) {
	ctx, known := context.Background(), map[types.NamespacedName]bool{}
	concerned := func(key types.NamespacedName) bool {
		is, asked := known[key]
		if !asked {
			var cluster clusterv1.Cluster
			is = r.Client.Get(ctx, key, &cluster) == nil && concerns(cluster.Labels)
			known[key] = is
		}
		return is
	}
	var first, others []ctrl.Request
	r.eachThatWaits(ctx, forPolicies, func(mu *refitv1.MachineUpdate) {
		req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(mu)}
		if concerned(types.NamespacedName{Namespace: mu.Namespace, Name: mu.Labels[clusterv1.ClusterNameLabel]}) {
			first = append(first, req)
		} else {
			others = append(others, req)
		}
	}, client.InNamespace(namespace))
	r.Sessions.AddFirst(first...)
	r.Sessions.Add(others...)
}

// healthAgain is when those are woken once more that wait for a health gate whose answer has changed: one that was being looked at just then, with
// the answer of before, shows only later that it waits.
var healthAgain = []time.Duration{0, time.Second, 10 * time.Second, longestFollow + 30*time.Second}

// wakeForHealth has the MachineUpdates of a namespace be looked at that wait for health gates.
func (r *Reconciler) wakeForHealth(namespace string) {
	waits := func(reason string) bool { return reason == refitv1.ReasonHealth }
	for _, after := range healthAgain {
		r.wakes.plan(wake{namespace, after}, func() {
			r.Sessions.Add(r.thatWaitFor(context.Background(), waits, client.InNamespace(namespace))...)
		})
	}
}

// wake is a look at a namespace some time after something has changed.
type wake struct {
	namespace string
	after     time.Duration
}

// wakes are those that are to come. Each goes through all updates of its namespace, and gates of many clusters may change at once: of those of a kind
// there is one, and another one after it for what has changed meanwhile.
type wakes struct {
	mu      sync.Mutex
	planned map[wake]bool // and whether there is to be another one
}

func (w *wakes) plan(one wake, look func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.planned[one]; ok {
		w.planned[one] = true
		return
	}
	if w.planned == nil {
		w.planned = map[wake]bool{}
	}
	w.planned[one] = false
	time.AfterFunc(one.after, func() {
		look()
		w.mu.Lock()
		again := w.planned[one]
		delete(w.planned, one)
		w.mu.Unlock()
		if again {
			w.plan(one, look)
		}
	})
}

func (r *Reconciler) thatWait(ctx context.Context, of ...client.ListOption) []ctrl.Request {
	return r.thatWaitFor(ctx, func(string) bool { return true }, of...)
}

func (r *Reconciler) thatWaitFor(ctx context.Context, reason func(string) bool, of ...client.ListOption) (requests []ctrl.Request) {
	r.eachThatWaits(ctx, reason, func(mu *refitv1.MachineUpdate) {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(mu)})
	}, of...)
	return requests
}

// eachThatWaits calls do for those MachineUpdates of a list that wait for a reason.
func (r *Reconciler) eachThatWaits(ctx context.Context, reason func(string) bool, do func(*refitv1.MachineUpdate), of ...client.ListOption) {
	var list refitv1.MachineUpdateList
	if err := r.Client.List(ctx, &list, of...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Could not list MachineUpdates")
		return
	}
	for i := range list.Items {
		if mu := &list.Items[i]; mu.Status.Phase == refitv1.PhaseWaiting && reason(mu.Status.Reason) {
			do(mu)
		}
	}
}
