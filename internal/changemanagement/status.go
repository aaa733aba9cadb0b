package changemanagement

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=changemanagementpolicies/status,verbs=update

const (
	// statusRefresh is how old the counts in a status may be.
	statusRefresh = 30 * time.Second
	// recentWindows is how many past windows a status has.
	recentWindows = 5
)

// Status shows in each policy's status what it means now. It runs in the leader only.
type Status struct {
	Client   client.Client
	Policies *Policies
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
}

// SetupWithManager has the manager run the Status.
func (s *Status) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("changemanagementpolicy-status").For(&refitv1.ChangeManagementPolicy{}).Complete(s)
}

// Reconcile writes the status of a policy, and comes back when it changes.
func (s *Status) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy refitv1.ChangeManagementPolicy
	if err := s.Client.Get(ctx, req.NamespacedName, &policy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	read := s.Policies.named(&policy)
	if read == nil {
		return ctrl.Result{RequeueAfter: time.Second}, nil // it is about to be read
	}
	before := policy.Status.DeepCopy()
	st := &policy.Status
	st.ObservedGeneration = policy.Generation
	now := s.Clock.Now()
	if err := s.count(ctx, read, st); err != nil {
		return ctrl.Result{}, err
	}
	read.show(now, st)
	if equality.Semantic.DeepEqual(before, st) { // times in whatever zone
		return ctrl.Result{RequeueAfter: untilNext(now, st)}, nil
	}
	if err := s.Client.Status().Update(ctx, &policy); err != nil {
		return ctrl.Result{}, fmt.Errorf("write the status of ChangeManagementPolicy %s: %w", req, err)
	}
	s.tell(&policy, before)
	return ctrl.Result{RequeueAfter: untilNext(now, st)}, nil
}

// named returns what was read of this very version of a policy, or nil.
func (p *Policies) named(policy *refitv1.ChangeManagementPolicy) *Policy {
	current := p.current.Load()
	if current == nil {
		return nil
	}
	for _, one := range current.byNamespace[policy.Namespace] {
		if one.UID == policy.UID && one.Generation == policy.Generation {
			return one
		}
	}
	return nil
}

// count counts the Machines that the policy selects, and those whose update waits.
func (s *Status) count(ctx context.Context, p *Policy, st *refitv1.ChangeManagementPolicyStatus) error {
	var machines clusterv1.MachineList
	if err := s.Client.List(ctx, &machines, client.InNamespace(p.Namespace)); err != nil {
		return fmt.Errorf("list Machines: %w", err)
	}
	clusters := map[string]*Subject{}
	var selected, pending int32
	for i := range machines.Items {
		m := &machines.Items[i]
		subject := &Subject{Namespace: m.Namespace, Cluster: m.Spec.ClusterName, Role: RoleOf(m.Labels), MachineLabels: m.Labels}
		known := clusters[subject.Cluster]
		if known == nil {
			known = &Subject{Namespace: m.Namespace, Cluster: m.Spec.ClusterName}
			if err := (Subjects{s.Client}).complete(ctx, known, owner{}); client.IgnoreNotFound(err) != nil {
				return err
			}
			clusters[subject.Cluster] = known
		}
		subject.ClusterLabels = known.ClusterLabels
		if !p.Selects(subject) {
			continue
		}
		selected++
		var mu refitv1.MachineUpdate
		switch err := s.Client.Get(ctx, client.ObjectKeyFromObject(m), &mu); {
		case err == nil && Holds(&mu):
			pending++
		case client.IgnoreNotFound(err) != nil:
			return err
		}
	}
	st.SelectedMachines, st.PendingMachines = &selected, &pending
	return nil
}

// show fills in what the policy means at an instant.
func (p *Policy) show(now time.Time, st *refitv1.ChangeManagementPolicyStatus) {
	st.Current, st.Next, st.NextChange, st.Recent = nil, nil, nil, nil
	err := p.Schedule.Err(now)
	for w := range schedule.Windows(now, now.Add(schedule.DefaultHorizon), p.Schedule) {
		if now.Before(w.Start) {
			st.Next = WindowOf(w)
			break
		}
		st.Current = WindowOf(w)
	}
	for w := range schedule.PastWindows(now, now.Add(-schedule.DefaultHorizon), p.Schedule) {
		if st.Recent = append(st.Recent, *WindowOf(w)); len(st.Recent) == recentWindows {
			break
		}
	}
	open := st.Current != nil
	st.Open = &open
	switch {
	case open:
		st.NextChange = st.Current.End
	case st.Next != nil:
		st.NextChange = st.Next.Start
	}
	p.conditions(now, err, st)
}

func (p *Policy) conditions(now time.Time, invalid error, st *refitv1.ChangeManagementPolicyStatus) {
	set := func(kind string, yes bool, reason, message string) {
		status := metav1.ConditionFalse
		if yes {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: st.ObservedGeneration,
		})
	}
	d := schedule.Decide(schedule.Query{Now: now}, p.Schedule)
	if invalid != nil {
		set(refitv1.ReadyCondition, false, string(schedule.InvalidPolicy), "the policy is closed: "+invalid.Error())
	} else {
		set(refitv1.ReadyCondition, true, "Read", "the policy can be read")
	}
	// What is not Ready counts as restricted. A window that is open, but too short for an update, is not.
	restricted := !*st.Open
	message := d.Message
	if !restricted {
		d.Reason, message = schedule.Open, "changes may start"
	}
	set(refitv1.ChangesRestrictedCondition, restricted, string(d.Reason), message)
	paused := d.Reason == schedule.Paused || d.Reason == schedule.NoWindowWithinHorizon
	if paused {
		set(refitv1.ChangesPausedCondition, true, string(d.Reason), message)
	} else {
		set(refitv1.ChangesPausedCondition, false, "NotPaused", "")
	}
	if n := *st.PendingMachines; n > 0 {
		set(refitv1.ChangesPendingCondition, true, "Waiting", fmt.Sprintf("%d of %d Machines have an update that waits for a policy", n, *st.SelectedMachines))
	} else {
		set(refitv1.ChangesPendingCondition, false, "None", "no update waits for a policy")
	}
}

// untilNext returns when to look again.
func untilNext(now time.Time, st *refitv1.ChangeManagementPolicyStatus) time.Duration {
	next := statusRefresh
	if st.NextChange != nil {
		next = min(next, max(st.NextChange.Sub(now), 0)+time.Millisecond)
	}
	return next
}

// tell has an Event for what operators have to know of.
func (s *Status) tell(policy *refitv1.ChangeManagementPolicy, before *refitv1.ChangeManagementPolicyStatus) {
	was, is := meta.FindStatusCondition(before.Conditions, refitv1.ReadyCondition), meta.FindStatusCondition(policy.Status.Conditions, refitv1.ReadyCondition)
	if was != nil && was.Status == is.Status && was.Message == is.Message {
		return
	}
	if is.Status == metav1.ConditionFalse {
		s.Recorder.Eventf(policy, nil, corev1.EventTypeWarning, is.Reason, "Read", "%s", Note(is.Message))
	} else if was != nil {
		s.Recorder.Eventf(policy, nil, corev1.EventTypeNormal, is.Reason, "Read", "%s", is.Message)
	}
}

// maxNote is how long the note of an Event may be, in bytes. An API server refuses longer ones.
const maxNote = 1024

// Note returns a message as an Event takes it.
func Note(message string) string {
	const more = "…"
	if len(message) <= maxNote {
		return message
	}
	return strings.ToValidUTF8(message[:maxNote-len(more)], "") + more
}
