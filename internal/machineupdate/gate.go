package machineupdate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/audit"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/machineupdate/flow"
	"github.com/capi-refit/refit/schedule"
)

// When an update that is held back asks again, which asks nobody but caches. What opens a policy wakes it: the policy's edit, an override on
// the Machine, its MachineDeployment or its Cluster, the instant at which a window opens, and another answer of a health gate.
const (
	// retryHeld is for what nobody has thought of.
	retryHeld = 10 * time.Minute
	// retryUnwatched is for what tells nobody: overrides on control planes, of whatever kind, which of those that wait for a budget is next, and that
	// others were measured to take less than what is left of a window.
	retryUnwatched = 15 * time.Second
)

// Gate lets updates start.
type Gate interface {
	// Ask reports whether an update may start now.
	Ask(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) (changemanagement.Decision, error)
	// Admit asks, and if the update may start has write record it.
	Admit(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate, write func(refitv1.Admission) error) (changemanagement.Decision, error)
	// Forget forgets an admission that the update, as the API server has it, no longer shows among its starts.
	Forget(mu *refitv1.MachineUpdate)
}

// Budgets finds whom a budget lets start.
type Budgets interface {
	// Next returns updates of a namespace that may start now, at most so many.
	Next(ctx context.Context, namespace string, most int) ([]types.NamespacedName, error)
}

// stillHeld reports whether an update that a policy holds back still is, by what caches say.
func (r *Reconciler) stillHeld(ctx context.Context, mu *refitv1.MachineUpdate) (ctrl.Result, bool) {
	if !waitsForPolicyOnly(mu) {
		return ctrl.Result{}, false
	}
	var machine clusterv1.Machine
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(mu), &machine); err != nil || gone(mu, &machine) {
		return ctrl.Result{}, false
	}
	d, err := r.askGate(ctx, &machine, mu)
	if err != nil || d.Open || !showsReason(d, mu) {
		return ctrl.Result{}, false
	}
	if mu.Status.HeldDigest == "" { // of an earlier version of refit: of those there may be thousands
		after := r.late.turn(client.ObjectKeyFromObject(mu), r.Clock.Now())
		return ctrl.Result{RequeueAfter: min(after, heldBy(d, &machine, mu).retry)}, after > 0 // its window may open before its turn
	}
	if mu.Status.HeldDigest != d.Digest() || r.asksNode(ctx, d, &machine, mu) {
		return ctrl.Result{}, false
	}
	return ctrl.Result{RequeueAfter: heldBy(d, &machine, mu).retry}, true
}

// asksNode reports whether what the node says may let an update start that a policy holds back.
func (r *Reconciler) asksNode(ctx context.Context, d changemanagement.Decision, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) bool {
	return !d.HoldsAll() && (d.Undecided || !r.disturbs(ctx, machine, mu))
}

// askGate asks whether an update may start now. What its node has said by other rules than those that hold now says nothing about what the change takes.
func (r *Reconciler) askGate(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) (changemanagement.Decision, error) {
	if p := mu.Status.Plan; p != nil && r.planIsOld(ctx, machine) {
		asked, plan := *mu, *p
		plan.Kinds, plan.Disruption = nil, ""
		asked.Status.Plan, mu = &plan, &asked
	}
	return r.Gate.Ask(ctx, machine, mu)
}

// disturbs reports whether the node has said that an update disturbs it, by the rules that hold now.
func (r *Reconciler) disturbs(ctx context.Context, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) bool {
	p := mu.Status.Plan
	return p != nil && p.Material && isWhole(p) && !r.planIsOld(ctx, machine)
}

// isWhole reports whether a plan says all that policies ask of it. That of an earlier version of refit does not: its node is asked again, else the update
// might wait for ever for a window that is longer than it takes.
func isWhole(p *refitv1.PlannedWork) bool { return p.WorstAction != "" }

// showsReason reports whether a MachineUpdate shows that it is held back for the reason that there is now.
func showsReason(d changemanagement.Decision, mu *refitv1.MachineUpdate) bool {
	c := meta.FindStatusCondition(mu.Status.Conditions, refitv1.PermittedCondition)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == string(d.Reason)
}

// waitsForPolicyOnly reports whether a policy is all that can make an update go on: nothing of refit's is on the node any more, and
// nobody has asked for another try, for other specs or for its deletion.
func waitsForPolicyOnly(mu *refitv1.MachineUpdate) bool {
	return changemanagement.Holds(mu) && nothingAsked(mu)
}

// nothingAsked reports whether nothing of refit's is on the node any more, and nobody has asked for another try, for other specs or for the deletion.
func nothingAsked(mu *refitv1.MachineUpdate) bool {
	return mu.DeletionTimestamp.IsZero() && mu.Status.ObservedDigest == mu.Spec.Digest && !retryAsked(mu) && !rollbackAsked(mu) && !abandonAsked(mu) &&
		mu.Status.Node == nil && mu.Status.Slot == nil && mu.Status.ApplyingSince == nil
}

// heldBy is what an update waits for that a policy holds back.
func heldBy(d changemanagement.Decision, machine *clusterv1.Machine, mu *refitv1.MachineUpdate) *wait {
	w := &wait{reason: refitv1.ReasonWindow, message: tellHeld(&d, mu), retry: retryHeld - spread(mu, retryHeld/4), decision: &d}
	switch d.Reason {
	case schedule.BudgetExhausted:
		w.reason = refitv1.ReasonBudget
	case schedule.GateFailed, schedule.GateUnknown:
		w.reason = refitv1.ReasonHealth
	default:
	}
	if w.reason == refitv1.ReasonBudget || d.Short || changemanagement.RoleOf(machine.Labels) == refitv1.ControlPlaneRole {
		w.retry = retryUnwatched
	}
	if eta := time.Duration(d.NextChangeETASeconds) * time.Second; eta > 0 && !d.Frees {
		w.retry = min(w.retry, eta)
	}
	if d.LookIn > 0 {
		w.retry = min(w.retry, d.LookIn)
	}
	return w
}

// tellHeld returns why an update is held back, what it takes, its deadline if that is near, and how to let it start.
func tellHeld(d *changemanagement.Decision, mu *refitv1.MachineUpdate) string {
	text := d.Message
	if mu.Status.Plan != nil {
		text += "; it takes: " + actionsOf(mu.Status.Plan.Actions)
	}
	if d.Near {
		text += "; " + d.Due.String()
	}
	if d.Reason == schedule.InvalidPolicy {
		return text
	}
	if firm := d.HowToBypassFirm(mu.ChangeID()); firm != "" {
		return text + "; " + firm
	}
	return text + fmt.Sprintf("; to let this one change start now: kubectl annotate machine -n %s %s %s=%s",
		mu.Namespace, mu.Name, refitv1.BypassAnnotation, mu.ChangeID())
}

// askPolicies asks whether the update may start. What holds it back is kept: only the node can say whether that matters.
func (u *update) askPolicies(ctx context.Context) (*wait, error) {
	d, err := u.askGate(ctx, u.regarding, u.mu)
	if err != nil {
		return nil, err
	}
	u.seen.Window = flow.Open
	if d.Open {
		u.opened, u.closed = d, nil
		return nil, nil
	}
	u.closed, u.seen.Window = heldBy(d, u.regarding, u.mu), flow.Closed
	if d.HoldsAll() {
		u.seen.Window = flow.ClosedToAll
	}
	u.seen.Current = u.mu.Status.Plan != nil && isWhole(u.mu.Status.Plan) && !d.Undecided && !u.planIsOld(ctx, u.regarding)
	return nil, nil
}

// goOn records that work goes on that was admitted before.
func (u *update) goOn(ctx context.Context) error {
	return u.claim(ctx, *u.mu.Status.Admission, nil)
}

// admitQuiet records that work starts that does not disturb the node.
func (u *update) admitQuiet(ctx context.Context) error {
	a := refitv1.Admission{
		AdmittedAt: u.now(), Reason: refitv1.NotMaterial,
		Message: "the change does not disturb the node", Role: changemanagement.RoleOf(u.regarding.Labels),
	}
	if !u.opened.Special() {
		return u.claim(ctx, a, nil)
	}
	a.Message += "; " + u.opened.Message
	if err := u.auditStart(a, u.opened); err != nil {
		return err
	}
	if err := u.claim(ctx, a, nil); err != nil {
		return err
	}
	u.opened.TellStart(ctx)
	u.tellOverride(u.opened)
	return nil
}

// tellOverride has an Event for an override that has let the update start.
func (u *update) tellOverride(d changemanagement.Decision) {
	if len(d.By) > 0 {
		u.event(corev1.EventTypeWarning, "ChangeManagementOverridden", "Override", d.Message)
	}
}

// admit asks the policies for the last time, and takes a slot for what disturbs the node. It returns what holds the update back, or
// records that the work starts.
func (u *update) admit(ctx context.Context) (*wait, error) { //nolint:cyclop // one answer to give after the other
	d, err := u.Gate.Ask(ctx, u.regarding, u.mu)
	if err != nil {
		return nil, err
	}
	if d.Open && u.mu.Status.Slot == nil {
		// A first look did not know yet that the update takes a slot. It is written with the admission.
		w, err := u.takeSlotAnd(ctx, func() error {
			if d, err = u.admitBy(ctx, d, &refitv1.Slot{TakenAt: u.now()}); err == nil && !d.Open {
				err = errClosed
			}
			return err
		})
		if (w != nil || err != nil) && !errors.Is(err, errClosed) {
			return w, err
		}
	} else if d.Open {
		if d, err = u.admitBy(ctx, d, nil); err != nil {
			return nil, err
		}
	}
	if !d.Open {
		return heldBy(d, u.regarding, u.mu), nil
	}
	u.seen.Slot = true
	u.tellOverride(d)
	return nil, nil
}

// errClosed says that a slot was not taken: policies have closed meanwhile.
var errClosed = fmt.Errorf("%w: a policy has closed", changemanagement.ErrNotTried)

// admitBy asks the policies for the last time, and records that the work starts if they let it.
func (u *update) admitBy(ctx context.Context, d changemanagement.Decision, slot *refitv1.Slot) (changemanagement.Decision, error) {
	tried := false
	decided, err := u.Gate.Admit(ctx, u.regarding, u.mu, func(a refitv1.Admission) error {
		tried = true
		if err := u.auditStart(a, d); err != nil {
			return fmt.Errorf("%w: %w", changemanagement.ErrNotTried, err)
		}
		return u.claim(ctx, a, slot)
	})
	if err != nil && !tried {
		err = fmt.Errorf("%w: %w", changemanagement.ErrNotTried, err) // else its slot would count as taken for a while
	}
	return decided, err
}

// auditStart records that an override, or somebody's permission, lets the update start. What can't be recorded does not start.
func (u *update) auditStart(a refitv1.Admission, d changemanagement.Decision) error {
	if u.Audit == nil || !d.Special() {
		return nil
	}
	event := audit.EventPermitted
	if len(d.By) > 0 {
		event = audit.EventOverridden
	}
	s := u.subject()
	_, err := u.Audit.Append(audit.Entry{
		Event: event, Machine: &audit.Machine{Namespace: s.Namespace, Name: s.Name, UID: string(u.regarding.UID)}, Note: a.Message,
	})
	return err
}

// note records what the node says that the update takes.
func (u *update) note(ctx context.Context) error {
	u.planned = &u.selected.Revision
	u.seen.Noted, u.seen.Current = true, false // what was known of policies and plan was about the plan before
	if u.scoped() {
		u.seen.Window = ""
	}
	p := refitv1.PlannedWork{
		Material: u.plan.Disturbs(), Reboots: u.plan.Reboots(), Kinds: u.kinds(), Disruption: disruptionOf(u.plan),
		WorstAction: worstOf(u.plan.Actions),
	}
	for _, a := range u.plan.Actions {
		p.Actions = append(p.Actions, a.String())
	}
	return u.tell(ctx, func(s *refitv1.MachineUpdateStatus) {
		if s.Plan = &p; p.Material && s.Admission != nil && s.Admission.Reason == refitv1.NotMaterial {
			s.Admission = nil // it was for less, and what waits for a policy or a slot keeps no node
		}
	})
}

// admitted writes an admission into a status. One that is there already is the same start; what does not disturb the node is
// none.
func admitted(s *refitv1.MachineUpdateStatus, a refitv1.Admission) {
	if a.Reason != refitv1.NotMaterial && (s.Admission == nil || !s.Admission.AdmittedAt.Equal(&a.AdmittedAt)) {
		s.Starts = slices.Insert(s.Starts, 0, a.AdmittedAt)
		s.Starts = s.Starts[:min(len(s.Starts), changemanagement.StartsKept)]
	}
	s.Admission = &a
	forgetHeld(s)
	permitted(s, metav1.ConditionTrue, a.Reason, a.Message)
}

func permitted(s *refitv1.MachineUpdateStatus, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: refitv1.PermittedCondition, Status: status, Reason: reason, Message: message,
	})
}
