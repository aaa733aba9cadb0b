package changemanagement

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/shard"
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
	return shard.Complete(mgr, ctrl.NewControllerManagedBy(mgr).Named("changemanagementpolicy-status").For(&refitv1.ChangeManagementPolicy{}), s, &refitv1.ChangeManagementPolicyList{})
}

// Reconcile writes the status of a policy, and comes back when it changes.
func (s *Status) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy refitv1.ChangeManagementPolicy
	st := &policy.Status
	shown := policykind.Shown{
		Client: s.Client, Recorder: s.Recorder, Kind: "ChangeManagementPolicy", Policy: &policy, Conditions: &st.Conditions,
	}
	return shown.Show(ctx, req, func() (time.Duration, error) {
		read, ok := s.Policies.Of(&policy)
		if !ok {
			return time.Second, nil // it is about to be read
		}
		st.ObservedGeneration = policy.Generation
		now := s.Clock.Now()
		if err := s.count(ctx, read, st); err != nil {
			return 0, err
		}
		read.show(now, st)
		return untilNext(now, st), nil
	})
}

// count counts the Machines that the policy selects, and those whose update waits.
func (s *Status) count(ctx context.Context, p *Policy, st *refitv1.ChangeManagementPolicyStatus) error {
	var machines clusterv1.MachineList
	if err := s.Client.List(ctx, &machines, client.InNamespace(p.Namespace)); err != nil {
		return fmt.Errorf("list Machines: %w", err)
	}
	clusters := map[string]*Candidate{}
	var selected, pending int32
	for i := range machines.Items {
		m := &machines.Items[i]
		candidate := &Candidate{Subject: inplace.SubjectOf(m), Role: RoleOf(m.Labels)}
		known := clusters[candidate.Cluster]
		if known == nil {
			known = &Candidate{Subject: candidate.Subject}
			if err := (Candidates{s.Client}).complete(ctx, known, owner{}); client.IgnoreNotFound(err) != nil {
				return err
			}
			clusters[candidate.Cluster] = known
		}
		candidate.ClusterLabels = known.ClusterLabels
		if !p.Selects(candidate) {
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
	meta.SetStatusCondition(&st.Conditions,
		policykind.Ready(st.ObservedGeneration, "policy", invalid, string(schedule.InvalidPolicy), "is closed"))
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
