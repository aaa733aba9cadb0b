package machineupdate

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// maxReadyMessage is how long the message of the condition Ready may be, in bytes: it is a column of a table.
const maxReadyMessage = 100

// setConditions writes into a status what it means: whether the update has succeeded, whether the Machine is as it should be, and, as far as that is
// known, whether it is paused.
func (u *update) setConditions(st *refitv1.MachineUpdateStatus) {
	status := metav1.ConditionUnknown
	switch st.Phase {
	case refitv1.PhaseSucceeded:
		status = metav1.ConditionTrue
	case refitv1.PhaseFailed:
		status = metav1.ConditionFalse
	default:
	}
	conditions := []metav1.Condition{
		{Type: refitv1.SucceededCondition, Status: status, Reason: cmp.Or(st.Reason, string(st.Phase)), Message: st.Message},
		readyOf(st),
	}
	if u.pause != nil {
		conditions = append(conditions, *u.pause)
	}
	for _, c := range conditions {
		c.ObservedGeneration = u.mu.Generation
		meta.SetStatusCondition(&st.Conditions, c)
	}
}

// readyOf is whether a node shows what is asked for, and still does: with the reason for which it does not, and the beginning of the message.
func readyOf(st *refitv1.MachineUpdateStatus) metav1.Condition {
	c := metav1.Condition{
		Type: refitv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: cmp.Or(st.Reason, string(st.Phase)), Message: beginning(st.Message),
	}
	if st.Phase != refitv1.PhaseSucceeded {
		return c
	}
	c.Status, c.Reason = metav1.ConditionTrue, clusterv1.ReadyReason
	if d := meta.FindStatusCondition(st.Conditions, refitv1.DriftedCondition); d != nil && d.Status == metav1.ConditionTrue {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, refitv1.DriftedCondition, beginning(d.Message)
	}
	return c
}

// beginning is what fits a table of a message, whole words of it.
func beginning(message string) string {
	const more = "…"
	message, _, _ = strings.Cut(message, "\n")
	if len(message) <= maxReadyMessage {
		return message
	}
	message = strings.ToValidUTF8(message[:maxReadyMessage-len(more)], "")
	if i := strings.LastIndexByte(message, ' '); i > 0 {
		message = message[:i]
	}
	return message + more
}

// notPaused is the condition Paused where nothing is.
var notPaused = metav1.Condition{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason}

// pauseOf is the condition Paused, as Cluster API has it of its own objects.
func pauseOf(cluster *clusterv1.Cluster, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) metav1.Condition {
	var by []string
	if ptr.Deref(cluster.Spec.Paused, false) {
		by = append(by, "Cluster spec.paused is set to true")
	}
	const has = " has the " + clusterv1.PausedAnnotation + " annotation"
	if annotations.HasPaused(machine) {
		by = append(by, "Machine"+has)
	}
	if annotations.HasPaused(mu) {
		by = append(by, "MachineUpdate"+has)
	}
	c := notPaused
	if len(by) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, clusterv1.PausedReason, strings.Join(by, ", ")
	}
	return c
}

// pauseToShow is the condition Paused of a MachineUpdate, by what caches say, or nil if it shows that already. Where nothing is paused, no condition shows
// that, too: nobody is written to for it.
func (r *Reconciler) pauseToShow(ctx context.Context, mu *refitv1.MachineUpdate) *metav1.Condition {
	var machine clusterv1.Machine
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(mu), &machine); err != nil || !metav1.IsControlledBy(mu, &machine) {
		return nil
	}
	var cluster clusterv1.Cluster
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: mu.Namespace, Name: machine.Spec.ClusterName}, &cluster); err != nil {
		return nil
	}
	c := pauseOf(&cluster, &machine, mu)
	shown := meta.FindStatusCondition(mu.Status.Conditions, c.Type)
	switch {
	case shown == nil && c.Status == metav1.ConditionFalse:
		return nil
	case shown != nil && shown.Status == c.Status && shown.Message == c.Message:
		return nil
	}
	c.ObservedGeneration = mu.Generation
	return &c
}

// showEnded writes into the status of an update that has ended whether it is paused, if that has changed, and Ready, if that is not there, as of one that has
// ended before there was that condition. Of those there may be thousands, when refit is upgraded, so that each comes at its turn.
func (r *Reconciler) showEnded(ctx context.Context, cached *refitv1.MachineUpdate) (ctrl.Result, error) {
	if beingMoved(cached) {
		return ctrl.Result{}, nil
	}
	pause, ready := r.pauseToShow(ctx, cached), readyToShow(cached)
	if pause == nil && ready == nil {
		return ctrl.Result{}, nil
	}
	if after := r.late.turn(client.ObjectKeyFromObject(cached), r.Clock.Now()); pause == nil && after > 0 {
		return ctrl.Result{RequeueAfter: after}, nil
	}
	mu := cached.DeepCopy()
	for _, c := range []*metav1.Condition{pause, ready} {
		if c != nil {
			meta.SetStatusCondition(&mu.Status.Conditions, *c)
		}
	}
	switch err := r.Client.Status().Update(ctx, mu); {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err): // the cache is behind; it comes again with what has changed
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("write the status of MachineUpdate %s/%s: %w", mu.Namespace, mu.Name, err)
	}
	r.late.done(client.ObjectKeyFromObject(cached))
	return ctrl.Result{}, nil
}

// readyToShow is the condition Ready of a MachineUpdate, or nil if it shows that.
func readyToShow(mu *refitv1.MachineUpdate) *metav1.Condition {
	c := readyOf(&mu.Status)
	if shown := meta.FindStatusCondition(mu.Status.Conditions, c.Type); shown != nil && shown.Status == c.Status {
		return nil
	}
	c.ObservedGeneration = mu.Generation
	return &c
}

// latePerSecond and lateAtOnce are how many updates that have ended get conditions that they lack: 30,000 in less than two hours.
const latePerSecond, lateAtOnce = 5, 20

// late has each of many come at its turn.
type late struct {
	mu    sync.Mutex
	limit *rate.Limiter
	turns map[types.NamespacedName]time.Time
}

// turn returns after how long it is the turn of a key, which has one from when it asks first.
func (l *late) turn(key types.NamespacedName, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit == nil {
		l.limit, l.turns = rate.NewLimiter(latePerSecond, lateAtOnce), map[types.NamespacedName]time.Time{}
	}
	at, ok := l.turns[key]
	if !ok {
		at = now.Add(l.limit.ReserveN(now, 1).DelayFrom(now))
		l.turns[key] = at
	}
	return at.Sub(now)
}

// done forgets the turn of a key.
func (l *late) done(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.turns, key)
}
