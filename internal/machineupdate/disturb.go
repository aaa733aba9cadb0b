package machineupdate

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drain"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/protection"
)

const (
	// retryDrain is how often the pods that are to leave are looked at.
	retryDrain = 5 * time.Second
	// retryDetach is how often the volumes are that are to be detached, which takes longer, and to look at reads those of the whole cluster.
	retryDetach = 10 * time.Second
)

func (u *update) now() metav1.Time { return metav1.NewTime(u.Clock.Now().Truncate(time.Second)) }

func (u *update) protector() *protection.Protector {
	return &protection.Protector{Management: u.Client, Live: u.Live, Workload: u.occupied.cluster.Client, Former: u.formerUIDs(), Known: &u.marks}
}

func (u *update) drainer() *drain.Drainer {
	c := u.occupied.cluster
	return &drain.Drainer{Client: c.Client, Clientset: c.Clientset, Rules: u.Client, Clock: u.Clock, Former: u.formerUIDs()}
}

// subject is the Machine as its markers have it.
func (u *update) subject() protection.Machine {
	return protection.Machine{ObjectKey: client.ObjectKeyFromObject(u.mu), UID: u.machineUID()}
}

func (u *update) machineUID() types.UID {
	if owner := metav1.GetControllerOf(u.mu); owner != nil {
		return owner.UID
	}
	return ""
}

// protect keeps others off the node. What disturbs may not come next without that.
func (u *update) protect(ctx context.Context) (*wait, error) {
	u.marks.Read = false
	err := u.protector().Protect(ctx, u.subject(), protection.Node(*u.mu.Status.Node))
	if err != nil {
		if w, err := u.stepError(ctx, err, !u.seen.InProgress()); w != nil || err != nil {
			return w, err
		}
	}
	u.seen.Protected = true
	u.seen.Allowed = u.seen.Allowed && !u.marks.Read // else they have changed since holds were looked for, or had the marks
	return nil, nil
}

// longestStall is how long an update waits with a node that is drained, and not changed, before it releases the node.
const longestStall = 10 * time.Minute

// isStalled reports whether the update has waited for long with a node that it was to drain, and has not changed.
func (u *update) isStalled() bool {
	if u.seen.Waits == "" {
		return false
	}
	if u.mu.Status.Drain == nil || u.mu.Status.ApplyingSince != nil {
		u.stalled.Delete(u.subject().ObjectKey)
		return false
	}
	return u.waitedSince(&u.stalled) >= longestStall
}

// waitedSince returns for how long, as this process knows, the update has waited. first has since when, by the key of each.
func (u *update) waitedSince(first *sync.Map) time.Duration {
	since, _ := first.LoadOrStore(u.subject().ObjectKey, u.Clock.Now())
	return u.Clock.Since(since.(time.Time))
}

// isLost reports whether the update has waited for as long as for a reboot for a node that may be half changed, and that does not answer, or
// is not as it must be: not Ready, say, or without its Node.
func (u *update) isLost() bool {
	switch {
	case u.seen.Waits == "":
		return false
	case u.mu.Status.ApplyingSince == nil, len(u.mu.Status.AtWork()) > 0, u.seen.Waits != refitv1.ReasonUnreachable && u.seen.Waits != refitv1.ReasonNode:
		u.lost.Delete(u.subject().ObjectKey)
		return false
	}
	return u.waitedSince(&u.lost) >= u.rebootPatience()
}

// drain does one round of the drain. When it has ended, which took a while, lease, holds and the other nodes are asked once more.
func (u *update) drain(ctx context.Context) (ctrl.Result, bool, error) {
	u.stalled.Delete(client.ObjectKeyFromObject(u.mu))
	progress, w, err := u.passDrain(ctx, drain.NodeRef(*u.mu.Status.Node))
	switch {
	case err != nil:
		return ctrl.Result{}, false, err
	case w != nil:
		u.blockOn(w)
	case progress.HandOver:
		u.handOver(progress.Message)
		return ctrl.Result{RequeueAfter: retryDrain}, false, nil
	case progress.TimedOut:
		u.blockOn(&wait{fails: "DrainTimedOut", message: "the node was not drained in time, and nothing was changed on it: " + progress.Message})
	case !progress.Done:
		return ctrl.Result{RequeueAfter: drainAgain(progress)}, false, nil
	}
	u.seen.Allowed, u.seen.Spared = false, false
	return ctrl.Result{}, true, nil
}

// passDrain cordons the node, asks its pods to leave, and shows how far that has come.
func (u *update) passDrain(ctx context.Context, n drain.NodeRef) (drain.Progress, *wait, error) {
	d := u.drainer()
	if u.mu.Status.Drain == nil {
		err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
			s.Phase, s.Reason, s.Step, s.Message = refitv1.PhaseDraining, "", "cordon", "cordoning the node"
			s.Drain = &refitv1.DrainStatus{StartedAt: u.now()}
		})
		if err != nil {
			return drain.Progress{}, nil, err
		}
	}
	u.occupied.held.Enter("drain")
	var progress drain.Progress
	u.marks.Node = nil
	ours, err := d.Cordon(ctx, n, u.machineUID())
	if err == nil {
		progress, err = d.Pass(ctx, drain.Request{
			Machine: u.regarding, Node: n, Since: u.mu.Status.Drain.StartedAt.Time, DetachingSince: ptr.Deref(u.mu.Status.Drain.DetachingSince, metav1.Time{}).Time, Self: u.Self,
		})
	}
	if err != nil {
		w, err := u.stepError(ctx, err, true)
		return progress, w, err
	}
	return progress, nil, u.showDrain(ctx, ours, progress)
}

func drainAgain(progress drain.Progress) time.Duration {
	if progress.Volumes > 0 {
		return retryDetach
	}
	return retryDrain
}

// showDrain shows how far the drain has come.
func (u *update) showDrain(ctx context.Context, cordoned bool, progress drain.Progress) error {
	return u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Reason, s.Step, s.Message = refitv1.PhaseDraining, "", "drain", progress.Message
		s.Drain.Cordoned, s.Drain.PodsLeft, s.Drain.Blocked = cordoned, int32(progress.Left), progress.Blocked
		s.Drain.VolumesLeft = int32(progress.Volumes)
		at := u.now()
		switch {
		case progress.Volumes == 0:
			s.Drain.DetachingSince = nil // a pod may have come back
		case s.Drain.DetachingSince == nil:
			s.Drain.DetachingSince = &at
		}
		if progress.Done {
			s.Drain.FinishedAt = &at
		}
	})
}

// handOver lets another instance do what would take this one's pod away.
func (u *update) handOver(why string) {
	if u.HandOver != nil {
		u.HandOver(why)
	}
}

// tellHolder tells at the Node that a hold has met an update: whoever holds it looks there.
func (u *update) tellHolder(ctx context.Context, held *lease.HeldError) {
	u.event(corev1.EventTypeWarning, "InPlaceUpdateHeld", "Release", "the update releases the node: "+held.Message)
	n := u.mu.Status.Node
	if n == nil || u.occupied.cluster == nil {
		return
	}
	at := u.now()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: n.Name + ".refit-", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID},
		Reason:         "InPlaceUpdateHeld", Type: corev1.EventTypeWarning, Source: corev1.EventSource{Component: "refit"},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Message: fmt.Sprintf("an in-place update was under way and stops for now: %s", held.Message),
	}
	if err := u.occupied.cluster.Client.Create(ctx, event); err != nil {
		ctrl.LoggerFrom(ctx).Info("Could not tell at the Node that its update releases it", "node", n.Name, "reason", err.Error())
	}
}

// awaitReady returns what the update waits for while the Node is not Ready again.
func (u *update) awaitReady(ctx context.Context) (*wait, error) {
	w, err := u.notReady(ctx)
	u.seen.Ready = w == nil && err == nil
	return w, err
}

// notReady returns why the node is not as it was before it was disturbed, or nil.
func (u *update) notReady(ctx context.Context) (*wait, error) {
	n := u.mu.Status.Node
	if n == nil {
		return nil, nil
	}
	if u.occupied.cluster == nil {
		return u.may(ctx, false)
	}
	current := u.shown
	if u.shown = nil; current == nil {
		current = &corev1.Node{}
		if err := u.occupied.cluster.Client.Get(ctx, types.NamespacedName{Name: n.Name}, current); err != nil {
			return unanswered(fmt.Errorf("read Node %s: %w", n.Name, err)), nil
		}
	}
	for _, c := range current.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil, nil
		}
	}
	return &wait{
		reason: refitv1.ReasonNode, retry: retryDrain,
		message: fmt.Sprintf("the work on the node is done, and Node %s is not Ready; look at it with: kubectl describe node %s", n.Name, n.Name),
	}, nil
}
