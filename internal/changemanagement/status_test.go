package changemanagement

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// show has the status of the policy a shown, and returns it with when to look again.
func (w *world) show(s *Status) (refitv1.ChangeManagementPolicyStatus, time.Duration) {
	w.T.Helper()
	again := w.Reconcile(s, "a").RequeueAfter
	return get(w, "a", &refitv1.ChangeManagementPolicy{}).Status, again
}

func (w *world) status() *Status {
	return &Status{Client: w, Live: w.Client, Policies: w.policies, Recorder: w.Events, Clock: w.Clock, Gate: w.gate}
}

func window(start, end string) *refitv1.Window {
	return &refitv1.Window{Start: &metav1.Time{Time: instant(start)}, End: &metav1.Time{Time: instant(end)}}
}

// madeAt is a policy that was created at an instant.
func madeAt(p *refitv1.ChangeManagementPolicy, created time.Time) *refitv1.ChangeManagementPolicy {
	p.CreationTimestamp = metav1.NewTime(created)
	return p
}

func at(s string) *metav1.Time { return &metav1.Time{Time: instant(s)} }

func TestStatus(t *testing.T) {
	const (
		ready, pending, restricted, paused = refitv1.ReadyCondition, refitv1.ChangesPendingCondition, refitv1.ChangesRestrictedCondition, refitv1.ChangesPausedCondition
		yes, no                            = metav1.ConditionTrue, metav1.ConditionFalse
	)
	october3, october10 := window("2026-10-03T20:00:00Z", "2026-10-04T04:00:00Z"), window("2026-10-10T20:00:00Z", "2026-10-11T04:00:00Z")
	frozen := func(s *spec) {
		s.MaintenanceSchedule.Permit = nil
		s.MaintenanceSchedule.Exclude = []schedule.Exclude{{From: "2026-12-20", Until: "2027-01-04", Reason: "year-end freeze"}}
	}
	for name, tc := range map[string]struct {
		policy     *refitv1.ChangeManagementPolicy
		now        time.Time
		open       bool
		current    *refitv1.Window
		next       *refitv1.Window
		nextChange *metav1.Time
		recent     int
		conditions map[string]metav1.ConditionStatus
		reason     schedule.Reason // of ChangesRestricted
		says       string          // in the message of ChangesRestricted
	}{
		"open":                              {saturdays("a"), inside, true, october3, october10, october3.End, 5, map[string]metav1.ConditionStatus{ready: yes, restricted: no, paused: no}, schedule.Open, "changes may start"},
		"its last moment":                   {saturdays("a"), closes.Add(-time.Second), true, october3, october10, october3.End, 5, map[string]metav1.ConditionStatus{ready: yes, restricted: no, paused: no}, schedule.Open, "changes may start"},
		"too short for any update":          {saturdays("a", expects("20h")), inside, true, october3, october10, october3.End, 5, map[string]metav1.ConditionStatus{ready: yes, restricted: yes, paused: no}, schedule.NeverFits, "no window within 1000 days is as long"},
		"too short for one that starts now": {saturdays("a", expects("2h")), closes.Add(-time.Hour), true, october3, october10, october3.End, 5, map[string]metav1.ConditionStatus{ready: yes, restricted: no, paused: no}, schedule.Open, "that take less than is expected: what is left of the window is shorter than 2h0m0s"},
		"a new one":                         {madeAt(saturdays("a"), opened.Add(-24*time.Hour)), closes, false, nil, october10, october10.Start, 1, map[string]metav1.ConditionStatus{ready: yes, restricted: yes, paused: no}, schedule.OutsideWindow, "opens at"},
		"closed":                            {saturdays("a"), closes, false, nil, october10, october10.Start, 5, map[string]metav1.ConditionStatus{ready: yes, restricted: yes, paused: no}, schedule.OutsideWindow, "opens at 2026-10-10T20:00:00Z"},
		"always":                            {anytime("a"), inside, true, &refitv1.Window{}, nil, nil, 0, map[string]metav1.ConditionStatus{ready: yes, restricted: no, paused: no}, schedule.Open, "changes may start"},
		"never":                             {never("a"), inside, false, nil, nil, nil, 0, map[string]metav1.ConditionStatus{ready: yes, restricted: yes, paused: yes}, schedule.Paused, "is restrictive"},
		"until a freeze":                    {saturdays("a", frozen), inside, true, &refitv1.Window{End: at("2026-12-20T00:00:00Z")}, &refitv1.Window{Start: at("2027-01-04T00:00:00Z")}, at("2026-12-20T00:00:00Z"), 0, map[string]metav1.ConditionStatus{ready: yes, restricted: no, paused: no}, schedule.Open, "changes may start"},
		"in a freeze":                       {saturdays("a", frozen), instant("2026-12-24T00:00:00Z"), false, nil, &refitv1.Window{Start: at("2027-01-04T00:00:00Z")}, at("2027-01-04T00:00:00Z"), 1, map[string]metav1.ConditionStatus{ready: yes, restricted: yes, paused: no}, schedule.Excluded, "year-end freeze"},
		"for the last time": {saturdays("a", func(s *spec) {
			s.MaintenanceSchedule.Permit[0].Recurrence += ";UNTIL=20261003T235959Z"
		}), closes, false, nil, nil, nil, 5, map[string]metav1.ConditionStatus{ready: yes, restricted: yes, paused: yes}, schedule.NoWindowWithinHorizon, "no window within 1000 days"},
		"invalid": {onMars("a"), inside, false, nil, nil, nil, 0, map[string]metav1.ConditionStatus{ready: no, restricted: yes, paused: metav1.ConditionUnknown}, schedule.InvalidPolicy, "maintenanceSchedule.timeZone: "},
	} {
		t.Run(name, func(t *testing.T) {
			tc.policy.Generation = 7
			w := newWorld(t, tc.policy)
			w.Clock.SetTime(tc.now)
			s := w.status()
			st, again := w.show(s)
			require.EqualValues(t, 7, st.ObservedGeneration)
			require.Equal(t, tc.open, *st.Open)
			sameWindow := func(want, got *refitv1.Window, what string) {
				require.Equal(t, want == nil, got == nil, what)
				if want != nil {
					require.True(t, want.Start.Equal(got.Start), "%s: %s", what, got.Start)
					require.True(t, want.End.Equal(got.End), "%s: %s", what, got.End)
				}
			}
			sameWindow(tc.current, st.Current, "current")
			sameWindow(tc.next, st.Next, "next")
			require.True(t, tc.nextChange.Equal(st.NextChange), "%s", st.NextChange)
			require.Len(t, st.Recent, tc.recent)
			for i := 1; i < len(st.Recent); i++ {
				require.True(t, st.Recent[i].End.Before(st.Recent[i-1].Start), "the latest first")
			}
			tc.conditions[pending] = no
			require.Len(t, st.Conditions, len(tc.conditions))
			for kind, want := range tc.conditions {
				c := apimeta.FindStatusCondition(st.Conditions, kind)
				require.Equal(t, want, c.Status, kind)
				require.NotEmpty(t, c.Reason)
				require.EqualValues(t, 7, c.ObservedGeneration)
			}
			c := apimeta.FindStatusCondition(st.Conditions, restricted)
			require.Equal(t, string(tc.reason), c.Reason)
			require.Contains(t, c.Message, tc.says)
			require.Positive(t, again)
			require.LessOrEqual(t, again, statusRefresh)

			w.Clock.SetTime(tc.now.Add(500 * time.Millisecond))
			w.show(s)
			require.Equal(t, 1, w.StatusWrites, "what has not changed is not written")
		})
	}
}

func TestTheStatusIsShownAgainWhenItChanges(t *testing.T) {
	w := newWorld(t, saturdays("a"))
	s := w.status()
	for _, boundary := range []time.Time{opened, closes} {
		w.Clock.SetTime(boundary.Add(-3 * time.Second))
		before, again := w.show(s)
		require.Greater(t, again, 3*time.Second)
		require.Less(t, again, 4*time.Second)
		w.Clock.SetTime(boundary.Add(-3 * time.Second).Add(again))
		after, _ := w.show(s)
		require.Equal(t, *before.Open, !*after.Open)
	}
}

func TestTheStatusCountsMachines(t *testing.T) {
	blocked := func(mu *refitv1.MachineUpdate) {
		mu.Status.Phase, mu.Status.Reason = refitv1.PhaseWaiting, refitv1.ReasonWindow
	}
	unreachable := func(mu *refitv1.MachineUpdate) {
		mu.Status.Phase, mu.Status.Reason = refitv1.PhaseWaiting, refitv1.ReasonUnreachable
	}
	w := newWorld(t,
		cluster("c1", map[string]string{"env": "prod"}, nil), cluster("c2", nil, nil),
		worker("w1"), worker("w2"), worker("w3"), worker("w4"), worker("w5", inCluster("c2")), worker("w6", inCluster("gone")), controlPlane("cp1"),
		update("w1", waiting), update("w2", blocked), update("w3", unreachable), update("w5", waiting), update("cp1", waiting),
		saturdays("a", clustersOf(map[string]string{"env": "prod"}), roles(refitv1.WorkerRole)))
	s := w.status()
	st, _ := w.show(s)
	require.EqualValues(t, 4, *st.SelectedMachines)
	require.EqualValues(t, 2, *st.PendingMachines)
	c := apimeta.FindStatusCondition(st.Conditions, refitv1.ChangesPendingCondition)
	require.Equal(t, metav1.ConditionTrue, c.Status)
	require.Equal(t, "2 of 4 Machines have a change that waits for a policy", c.Message)
	w.edit("w1", started(inside))
	w.edit("w2", started(inside))
	st, _ = w.show(s)
	require.Zero(t, *st.PendingMachines)
	require.False(t, apimeta.IsStatusConditionTrue(st.Conditions, refitv1.ChangesPendingCondition))
}

func TestTheStatusCountsWhatHasNoUpdate(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), worker("w2"), worker("w3"), update("w1", waiting), saturdays("a"),
		uncommittedOf(refitv1.PendingPolicy{Name: "a", Machines: 2, Held: 1}, refitv1.PendingPolicy{Name: "b", Machines: 2, Held: 2}))
	st, _ := w.show(w.status())
	require.EqualValues(t, 2, *st.PendingMachines, "w1, and one that waits to be replaced, say")
	require.True(t, apimeta.IsStatusConditionTrue(st.Conditions, refitv1.ChangesPendingCondition))
}

func TestEventsOfPoliciesThatCannotBeRead(t *testing.T) {
	w := newWorld(t, saturdays("a"))
	s := w.status()
	zone := func(z string) {
		w.Change("a", func(s *spec) { s.MaintenanceSchedule.TimeZone = z })
		_, again := w.show(s)
		require.Equal(t, time.Second, again, "this version was not read yet")
		w.Reread("a")
		w.show(s)
		w.show(s)
	}
	w.show(s)
	w.RequireNoEvent("that it can be read is no news")
	zone("Mars/Olympus")
	w.RequireEvent(`^Warning InvalidPolicy the policy is closed: maintenanceSchedule.timeZone: .*Mars/Olympus`)
	w.RequireNoEvent("once is enough")
	zone("Mars/Valles")
	w.RequireEvent(`^Warning InvalidPolicy .*Mars/Valles`)
	zone("Europe/Berlin")
	w.RequireEvent("^Normal Read the policy can be read$")
	w.RequireNoEvent()
	w = newWorld(t, onMars("a"))
	s = w.status()
	w.show(s)
	w.RequireEvent(`^Warning InvalidPolicy`)
}

func TestStatusOfWhatIsNotThere(t *testing.T) {
	w := newWorld(t)
	s := w.status()
	require.Zero(t, w.Reconcile(s, "a"))
	w = newWorld(t, saturdays("a"))
	s = w.status()
	s.Policies = NewPolicies(nil, nil, nil)
	_, again := w.show(s)
	require.Equal(t, time.Second, again, "the policies were not read yet")
}

// looking keeps the names of the Machines that are listed.
type looking struct {
	client.Client
	at map[string]bool
}

func (l looking) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := l.Client.List(ctx, list, opts...)
	if machines, ok := list.(*clusterv1.MachineList); ok {
		for i := range machines.Items {
			l.at[machines.Items[i].Name] = true
		}
	}
	return err
}

// TestAPolicyLooksAtMachinesOfItsClusters only, and at those whose label says nothing or something else: there are many policies in a namespace.
func TestAPolicyLooksAtMachinesOfItsClusters(t *testing.T) {
	unlabelled := func(m *clusterv1.Machine) { delete(m.Labels, clusterv1.ClusterNameLabel) }
	w := newWorld(t, saturdays("a", func(s *spec) { s.Selector.Clusters.MatchLabels = map[string]string{"env": "prod"} }),
		cluster("c1", map[string]string{"env": "prod"}, nil), cluster("c2", map[string]string{"env": "test"}, nil),
		worker("m1"), worker("m2", unlabelled), worker("m3", inCluster("c2")), worker("m4", inCluster("c2"), unlabelled),
	)
	s := w.status()
	looked := looking{s.Client, map[string]bool{}}
	s.Client = looked
	st, _ := w.show(s)
	require.EqualValues(t, 2, *st.SelectedMachines)
	require.Equal(t, map[string]bool{"m1": true, "m2": true}, looked.at)
}
