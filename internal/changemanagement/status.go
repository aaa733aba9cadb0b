package changemanagement

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/revision"
	"github.com/capi-refit/refit/internal/shard"
	"github.com/capi-refit/refit/schedule"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=changemanagementpolicies/status;clusterchangemanagementpolicies/status,verbs=update

const (
	// statusRefresh is how old the counts in a status may be.
	statusRefresh = 30 * time.Second
	// recentWindows is how many past windows a status has.
	recentWindows = 5
)

// Status shows in each policy's status what it means now. It runs in the leader only.
type Status struct {
	Client client.Client
	// Live reads from the API server.
	Live     client.Reader
	Policies *Policies
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Gate is told of updates that are gone.
	Gate *Gate

	changes index.Changes // of what is counted
	still   revision.Standing[still]
}

func (s *Status) cached() index.Memory {
	return index.Memory{Client: s.Client, Informers: s.Gate.Informers}
}

// SetupWithManager has the manager run the Status.
func (s *Status) SetupWithManager(mgr ctrl.Manager) error {
	gone := handler.Funcs{DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		if mu, ok := e.Object.(*refitv1.MachineUpdate); ok {
			s.depart(mu, q.AddAfter)
		}
	}}
	controller := ctrl.NewControllerManagedBy(mgr).Named("changemanagementpolicy-status").
		For(&refitv1.ChangeManagementPolicy{}, builder.WithPredicates(policykind.Edited)).Watches(&refitv1.MachineUpdate{}, gone)
	ofClusters := ctrl.NewControllerManagedBy(mgr).Named("clusterchangemanagementpolicy-status").
		For(&refitv1.ClusterChangeManagementPolicy{}, builder.WithPredicates(policykind.Edited))
	return errors.Join(
		shard.Complete(mgr, controller, s, &refitv1.ChangeManagementPolicyList{}),
		// They have no namespace, and so one shard.
		shard.Complete(mgr, ofClusters, reconcile.Func(s.reconcileCluster), &refitv1.ClusterChangeManagementPolicyList{}),
	)
}

// ledgerDelay is how long after an update is gone ledgers are written: many may go at once.
const ledgerDelay = time.Second

// depart has the ledgers keep what an update has done that is gone.
func (s *Status) depart(mu *refitv1.MachineUpdate, again func(ctrl.Request, time.Duration)) {
	mu = mu.Restored()
	s.Gate.departed.note(s.Clock.Now(), mu)
	if a := mu.Status.Admission; a != nil {
		for _, name := range a.Policies {
			again(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: mu.Namespace, Name: name}}, ledgerDelay)
		}
	}
}

// Reconcile writes the status of a policy, and comes back when it changes.
func (s *Status) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy refitv1.ChangeManagementPolicy
	return s.reconcile(ctx, req, stored{
		Object: &policy, kind: policyKind, status: &policy.Status,
		read:      func() (*Policy, bool) { return s.Policies.Of(&policy) },
		count:     func(now time.Time, read *Policy) error { return s.count(ctx, now, read, &policy) },
		succeeded: func(about time.Time) (bool, error) { return s.succeeded(ctx, &policy, about) },
	})
}

// stored is a policy of either kind as the API server has it.
type stored struct {
	client.Object
	kind   string
	status *refitv1.ChangeManagementPolicyStatus
	// read returns what was read of it, and count writes into the status what counts under it.
	read  func() (*Policy, bool)
	count func(now time.Time, read *Policy) error
	// succeeded reports whether nothing is left for it to hold when it is deleted: what has taken its place was made since then.
	succeeded func(about time.Time) (bool, error)
}

// reconcile writes the status of a policy of either kind.
func (s *Status) reconcile(ctx context.Context, req ctrl.Request, policy stored) (ctrl.Result, error) {
	st := policy.status
	shown := policykind.Shown{
		Client: s.Client, Recorder: s.Recorder, Kind: policy.kind, Policy: policy.Object, Conditions: &st.Conditions,
	}
	made := func() {} // notes from what the status was made
	result, err := shown.Show(ctx, req, func() (time.Duration, error) {
		read, ok := policy.read()
		if !ok {
			return time.Second, nil // it is about to be read
		}
		now := s.Clock.Now()
		from, still := s.from(policy, read)
		if still && s.still.Stands(now, req.NamespacedName, from) {
			return untilNext(now, st), nil
		}
		st.ObservedGeneration = policy.GetGeneration()
		if err := policy.count(now, read); err != nil {
			return 0, err
		}
		read.show(now, policy.GetCreationTimestamp().Time, st)
		st.Gates = s.Gate.gatesOf(read)
		if still {
			made = func() { s.still.Note(now, req.NamespacedName, from, standsUntil(now, st)) }
		}
		left, err := s.grace(ctx, policy, read)
		if err != nil || left == 0 {
			return untilNext(now, st), err
		}
		if read.Schedule.Err(now) != nil {
			return min(left, untilNext(now, st)), nil // what is wrong with it is said
		}
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{
			Type: refitv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Deleting", ObservedGeneration: st.ObservedGeneration,
			Message: "the policy is being deleted, and counts until " + now.Add(left).UTC().Format(time.RFC3339) + " (deletionGrace); a new one with another name that selects the same takes over at once",
		})
		return min(left, untilNext(now, st)), nil
	})
	if errors.Is(err, errGone) {
		return ctrl.Result{}, nil
	}
	if err == nil {
		made()
	}
	return result, err
}

// count counts what a policy of a namespace selects, and learns how long updates took and what they did.
func (s *Status) count(ctx context.Context, now time.Time, p *Policy, policy *refitv1.ChangeManagementPolicy) error {
	st, since := &policy.Status, p.since(now)
	learn, keep := newLearner(now, st), ledgerOf(now, since, policy, s.Gate.departed.of(policy))
	keep.soaked(now, policy, s.Gate.soaks.of(policy.UID))
	seen := map[string]bool{}
	err := s.tally(ctx, now, p, st, func(mu *refitv1.MachineUpdate) {
		learn.see(mu)
		keep.see(mu.Restored(), since)
		seen[string(mu.UID)] = true
	})
	if err != nil {
		return err
	}
	learn.write(st, p.Schedule.ExpectedDuration())
	if err := keep.settle(seen, func(name string) (time.Time, bool, error) { return s.made(ctx, policy.Namespace, name) }); err != nil {
		return err
	}
	st.Ledger = keep.status(now, p.Budget)
	return s.countUncommitted(ctx, p, st)
}

// made returns when a Machine was created, and whether it is there.
func (s *Status) made(ctx context.Context, namespace, name string) (time.Time, bool, error) {
	var m clusterv1.Machine
	err := s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &m)
	return m.CreationTimestamp.Time, err == nil, client.IgnoreNotFound(err)
}

// show fills in what the policy means at an instant. Windows that had ended before it was made were none.
func (p *Policy) show(now, made time.Time, st *refitv1.ChangeManagementPolicyStatus) {
	st.Current, st.Next, st.NextChange, st.Recent = nil, nil, nil, nil
	err, widest := p.Schedule.Err(now), p.Schedule.Widest()
	for w := range schedule.Windows(now, now.Add(schedule.DefaultHorizon), widest) {
		if now.Before(w.Start) {
			st.Next = WindowOf(w)
			break
		}
		st.Current = WindowOf(w)
	}
	limit := now.Add(-schedule.DefaultHorizon)
	if made.After(limit) {
		limit = made
	}
	for w := range schedule.PastWindows(now, limit, widest) {
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
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: st.ObservedGeneration,
		})
	}
	d := schedule.Decide(schedule.Query{Now: now}, p.Schedule.Widest())
	meta.SetStatusCondition(&st.Conditions,
		policykind.Ready(st.ObservedGeneration, "policy", invalid, string(schedule.InvalidPolicy), "is closed"))
	// What is not Ready counts as restricted, and so does a window that no update ever fits into. One that is too short for what is left of it
	// is open for those that take less than is expected.
	switch {
	case !*st.Open || d.Reason == schedule.NeverFits:
		set(refitv1.ChangesRestrictedCondition, metav1.ConditionTrue, string(d.Reason), d.Message)
	case d.Open:
		set(refitv1.ChangesRestrictedCondition, metav1.ConditionFalse, string(schedule.Open), p.mayStart(now))
	default:
		set(refitv1.ChangesRestrictedCondition, metav1.ConditionFalse, string(schedule.Open), "changes may start that take less than is expected: "+d.Message)
	}
	switch d.Reason {
	case schedule.Paused, schedule.Manual, schedule.NoWindowWithinHorizon:
		set(refitv1.ChangesPausedCondition, metav1.ConditionTrue, string(d.Reason), d.Message)
	case schedule.InvalidPolicy:
		set(refitv1.ChangesPausedCondition, metav1.ConditionUnknown, string(d.Reason), d.Message)
	default:
		set(refitv1.ChangesPausedCondition, metav1.ConditionFalse, "NotPaused", "")
	}
	if n := *st.PendingMachines; n > 0 {
		set(refitv1.ChangesPendingCondition, metav1.ConditionTrue, "Waiting", fmt.Sprintf("%d of %d Machines have a change that waits for a policy", n, *st.SelectedMachines))
	} else {
		set(refitv1.ChangesPendingCondition, metav1.ConditionFalse, "None", "no change waits for a policy")
	}
}

// mayStart tells which changes may start in the window that is open.
func (p *Policy) mayStart(now time.Time) string {
	if !p.Schedule.Scoped() {
		return "changes may start"
	}
	var all []string
	for _, permit := range p.Schedule.Widest().Permits() {
		if permit.Covers(now) {
			all = append(all, permit.Text)
		}
	}
	return "changes may start that these are for: " + strings.Join(all, "; ")
}

// untilNext returns when to look again.
func untilNext(now time.Time, st *refitv1.ChangeManagementPolicyStatus) time.Duration {
	next := statusRefresh
	if st.NextChange != nil {
		next = min(next, max(st.NextChange.Sub(now), 0)+time.Millisecond)
	}
	return next
}
