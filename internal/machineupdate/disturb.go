package machineupdate

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/drain"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/protection"
)

// retryDrain is how often the pods that are to leave are looked at.
const retryDrain = 5 * time.Second

func (u *update) now() metav1.Time { return metav1.NewTime(u.Clock.Now().Truncate(time.Second)) }

func (u *update) protector() *protection.Protector {
	return &protection.Protector{Management: u.Client, Live: u.Live, Workload: u.occupied.cluster.Client}
}

func (u *update) drainer() *drain.Drainer {
	c := u.occupied.cluster
	return &drain.Drainer{Client: c.Client, Clientset: c.Clientset, Rules: u.Client, Clock: u.Clock}
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

// unmark takes away what keeps others off the node.
func (u *update) unmark(ctx context.Context, n refitv1.NodeReference, keepCordon bool) error {
	if !keepCordon {
		if err := u.drainer().Uncordon(ctx, drain.NodeRef(n), u.machineUID()); err != nil {
			return err
		}
	}
	return u.protector().Release(ctx, u.subject(), protection.Node(n))
}

// mark keeps others off the node. disruptive says that what comes next may not do without that.
func (u *update) mark(ctx context.Context, n refitv1.NodeReference, disruptive bool) (*wait, error) {
	if err := u.protector().Protect(ctx, u.subject(), protection.Node(n)); err != nil {
		return u.hindrance(ctx, err, disruptive)
	}
	return nil, nil
}

// toDrain says whether pods are still to leave the node.
func (u *update) toDrain(plan node.Plan) bool {
	d := u.mu.Status.Drain
	return drains(plan) && (d == nil || d.FinishedAt == nil)
}

// drains says whether pods leave the node before it is changed.
func drains(plan node.Plan) bool {
	return slices.ContainsFunc(plan.Actions, func(a disruption.Action) bool {
		return a.Type == disruption.Drain || a.Type == disruption.Reboot
	})
}

// protect keeps others off the node, and has its pods leave if the plan says so and the node has not begun. It returns what is
// still to be waited for.
func (u *update) protect(ctx context.Context, plan node.Plan, begun bool) (ctrl.Result, bool, error) {
	if w, err := u.may(ctx, !begun); w != nil || err != nil {
		return u.hindered(ctx, w, err)
	}
	n := u.mu.Status.Node
	if n == nil {
		return ctrl.Result{}, true, nil
	}
	if w, err := u.mark(ctx, *n, !begun); w != nil || err != nil {
		return u.hindered(ctx, w, err)
	}
	if begun || !u.toDrain(plan) {
		return ctrl.Result{}, true, nil
	}
	if result, ok, err := u.drain(ctx, drain.NodeRef(*n)); !ok {
		return result, ok, err
	}
	// That took a while.
	if w, err := u.may(ctx, true); w != nil || err != nil {
		return u.hindered(ctx, w, err)
	}
	return ctrl.Result{}, true, nil
}

// drain does one round of the drain, and says whether it has ended.
func (u *update) drain(ctx context.Context, n drain.NodeRef) (ctrl.Result, bool, error) {
	d := u.drainer()
	if u.mu.Status.Drain == nil {
		err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
			s.Phase, s.Reason, s.Step, s.Message = refitv1.PhaseDraining, "", "cordon", "cordoning the node"
			s.Drain = &refitv1.DrainStatus{StartedAt: u.now()}
		})
		if err != nil {
			return ctrl.Result{}, false, err
		}
	}
	u.occupied.held.Enter("drain")
	ours, err := d.Cordon(ctx, n, u.machineUID())
	if err != nil {
		w, err := u.hindrance(ctx, err, true)
		return u.hindered(ctx, w, err)
	}
	progress, err := d.Pass(ctx, drain.Request{Machine: u.regarding, Node: n, Since: u.mu.Status.Drain.StartedAt.Time, Self: u.Self})
	if err != nil {
		w, err := u.hindrance(ctx, err, true)
		return u.hindered(ctx, w, err)
	}
	err = u.set(ctx, func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Reason, s.Step, s.Message = refitv1.PhaseDraining, "", "drain", progress.Message
		s.Drain.Cordoned, s.Drain.PodsLeft, s.Drain.Blocked = ours, int32(progress.Left), progress.Blocked
		if progress.Done {
			at := u.now()
			s.Drain.FinishedAt = &at
		}
	})
	switch {
	case err != nil:
		return ctrl.Result{}, false, err
	case progress.HandOver:
		u.handOver(progress.Message)
		return ctrl.Result{RequeueAfter: retryDrain}, false, nil
	case progress.TimedOut:
		result, err := u.fail(ctx, "DrainTimedOut", "the node was not drained in time, and nothing was changed on it: "+progress.Message)
		return result, false, err
	case !progress.Done:
		return ctrl.Result{RequeueAfter: retryDrain}, false, nil
	}
	return ctrl.Result{}, true, nil
}

// hindered has the update wait.
func (u *update) hindered(ctx context.Context, w *wait, err error) (ctrl.Result, bool, error) {
	if err != nil {
		return ctrl.Result{}, false, err
	}
	result, err := u.await(ctx, w)
	return result, false, err
}

// handOver lets another instance do what would take this one's pod away.
func (u *update) handOver(why string) {
	if u.HandOver != nil {
		u.HandOver(why)
	}
}

// tellHolder tells at the Node that a hold has met an update: whoever holds it looks there.
func (u *update) tellHolder(ctx context.Context, held *lease.HeldError) {
	u.event(corev1.EventTypeWarning, "InPlaceUpdateHeld", "Yield", "the update yields: "+held.Message)
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
		ctrl.LoggerFrom(ctx).Info("Could not tell at the Node that its update yields", "node", n.Name, "reason", err.Error())
	}
}

// notReady says why the node is not as it was before it was disturbed, or nil.
func (u *update) notReady(ctx context.Context) (*wait, error) {
	n := u.mu.Status.Node
	if n == nil {
		return nil, nil
	}
	if u.occupied.cluster == nil {
		return u.may(ctx, false)
	}
	var current corev1.Node
	if err := u.occupied.cluster.Client.Get(ctx, types.NamespacedName{Name: n.Name}, &current); err != nil {
		return u.unanswered(fmt.Errorf("read Node %s: %w", n.Name, err))
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
