package loginprobe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
)

// change edits the NodeAccess as a person does.
func (f *fleet) change(edit func(*refitv1.NodeAccess)) {
	na := f.access()
	na.Generation++
	edit(na)
	require.NoError(f.t, f.Update(f.t.Context(), na))
}

// TestWhatWasFoundInAnotherWayIsNotKnownOfThisOne: a user that is misspelled is not Ready because the one before it was.
func TestWhatWasFoundInAnotherWayIsNotKnownOfThisOne(t *testing.T) {
	f := newFleet(t, 10)
	f.down["m03"] = refused
	f.run(time.Hour + time.Minute)
	since := f.access().Status.Unreached[0].Since
	f.change(func(na *refitv1.NodeAccess) { na.Spec.SSH.User = "tpyo" })
	f.tried = nil
	f.look()
	s := f.access().Status
	require.LessOrEqual(t, int(*s.Reachable+*s.Unreachable), len(f.tried), "none counts that was not tried since")
	require.NotEqual(t, metav1.ConditionTrue, s.Conditions[0].Status)
	f.restart() // the other process has them tried as soon
	f.run(soon + time.Minute)
	require.GreaterOrEqual(t, len(f.tried), 10)
	f.requireCounts(10, 9, 1)
	require.False(t, f.access().Status.Unreached[0].Since.Before(&since))

	// Who selects other Machines has those that stay be reached as before.
	f.change(func(na *refitv1.NodeAccess) {
		na.Spec.MachineSelector.MatchLabels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
	})
	f.tried = nil
	f.look()
	require.Empty(t, f.tried)
	f.requireCounts(10, 9, 1)
}

func TestSinceWhenANodeIsDarkOutlastsAnEdit(t *testing.T) {
	f := newFleet(t, 1)
	f.down["m00"] = refused
	f.run(time.Hour + time.Minute)
	since := f.access().Status.Unreached[0].Since
	f.change(func(na *refitv1.NodeAccess) { na.Spec.SSH.User = "other" })
	f.run(soon + time.Minute)
	require.Equal(t, since, f.access().Status.Unreached[0].Since)
}

// TestWhatIsTooLongAgoIsNotKnown: a login of long ago says nothing of today. That one failed stands until one succeeds.
func TestWhatIsTooLongAgoIsNotKnown(t *testing.T) {
	f := newFleet(t, 2)
	f.down["m01"] = refused
	f.run(time.Hour + time.Minute)
	f.requireCounts(2, 1, 1)
	f.off["m00"], f.off["m01"] = true, true
	f.run(2 * time.Hour)
	f.requireCounts(2, 1, 1)
	f.run(2 * time.Hour)
	f.requireCounts(2, 0, 1)
	f.requireReady(metav1.ConditionFalse, refitv1.NodeAccessUnreached, "of 2 nodes 1 can't be reached, and 1 were not tried")
}

// TestWhatAnUpdateOfLongAgoTells is nothing: not of how its node is reached today, and not by a NodeAccess that was changed since.
func TestWhatAnUpdateOfLongAgoTells(t *testing.T) {
	for name, tc := range map[string]struct {
		generation int64
		ago        time.Duration
		interval   time.Duration
		known      bool
	}{
		"two years ago":                        {1, 2 * 365 * 24 * time.Hour, 0, false},
		"an hour ago":                          {1, time.Hour, 0, true},
		"more than a few intervals ago":        {1, 4 * time.Hour, time.Hour, false},
		"an hour ago, by another NodeAccess":   {1, 49 * time.Hour, 0, false},
		"an hour ago, in whichever way it was": {7, time.Hour, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1)
			f.change(func(na *refitv1.NodeAccess) { na.Generation = tc.generation })
			var m clusterv1.Machine
			require.NoError(t, f.Get(t.Context(), client.ObjectKey{Namespace: "lab", Name: "m00"}, &m))
			at := metav1.NewTime(managementtest.Start.Add(-tc.ago))
			require.NoError(t, f.Create(t.Context(), managementtest.MachineUpdate(&m, func(mu *refitv1.MachineUpdate) {
				mu.Status.Phase, mu.Status.FinishedAt = refitv1.PhaseSucceeded, &at
			})))
			f.probe.Interval = tc.interval
			f.look()
			if tc.known {
				f.requireReady(metav1.ConditionTrue, refitv1.NodeAccessReached, "")
			} else {
				f.requireReady(metav1.ConditionUnknown, refitv1.NodeAccessNotTried, "")
			}
		})
	}
}

// TestARestartChangesNoCounts: a status has room for a few only, and its counts stand for the others until they are tried.
func TestARestartChangesNoCounts(t *testing.T) {
	f := newFleet(t, 60)
	for i := range 40 {
		f.down[fmt.Sprintf("m%02d", i)] = Finding{refitv1.ReasonHostKey, strings.Repeat("é", 1000)}
	}
	f.run(time.Hour + time.Minute)
	f.requireCounts(60, 20, 40)
	na := f.access()
	require.Len(t, na.Status.Unreached, refitv1.MaxUnreachedMachines)
	require.LessOrEqual(t, len(na.Status.Unreached[0].Message), maxMessage)
	f.requireReady(metav1.ConditionFalse, refitv1.NodeAccessUnreached, "and 37 more")
	for range 2 { // what was carried over is carried on
		f.restart()
		f.look()
		f.requireCounts(60, 20, 40)
		f.requireReady(metav1.ConditionFalse, refitv1.NodeAccessUnreached, "of 60 nodes 40 can't be reached, and 40 were not tried since")
	}
	for range 12 {
		f.run(5 * time.Minute)
		f.requireCounts(60, 20, 40)
	}
	f.run(2 * time.Minute)
	require.NotContains(t, f.requireReady(metav1.ConditionFalse, refitv1.NodeAccessUnreached, "").Status.Conditions[0].Message, "not tried")

	// What was carried over gives way to what is found.
	f.restart()
	clear(f.down)
	f.run(time.Hour + time.Minute)
	f.requireCounts(60, 60, 0)
}

// TestAStatusOfLongAgoIsNotCarriedOver: nobody knows what has become of the nodes.
func TestAStatusOfLongAgoIsNotCarriedOver(t *testing.T) {
	f := newFleet(t, 3)
	f.down["m01"] = refused
	f.run(time.Hour + time.Minute)
	f.clock.Step(5 * time.Hour)
	f.restart()
	f.off["m00"], f.off["m01"], f.off["m02"] = true, true, true
	f.look()
	f.requireCounts(3, 0, 0)
}

// TestADarkNodeIsTriedMoreAndMoreRarely, down to once an interval: many of them are not to keep refit from the others.
func TestADarkNodeIsTriedMoreAndMoreRarely(t *testing.T) {
	f := newFleet(t, 30)
	for i := range 30 {
		f.down[fmt.Sprintf("m%02d", i)] = refused
	}
	f.run(time.Hour + time.Minute)
	f.tried = nil
	f.run(2 * time.Hour)
	require.GreaterOrEqual(t, len(f.tried), 2*30, "some come soon again at first")
	require.Less(t, len(f.tried), 6*30)
	f.tried = nil
	f.run(4 * time.Hour)
	require.InDelta(t, 4*30, len(f.tried), 31, "once an hour each")
	f.restart()
	f.run(2 * time.Hour)
	require.InDelta(t, 2*30, len(f.tried), 31, "a restart does not begin again with it: 20 of them are listed")
}

// TestWhoComesBeforeDarkNodes where there is not time for all.
func TestWhoComesBeforeDarkNodes(t *testing.T) {
	f := newFleet(t, 2)
	f.down["m01"] = refused
	f.run(time.Hour + time.Minute)
	f.clock.Step(2 * time.Hour)
	is := func(name string, urgent bool) {
		t.Helper()
		d, err := f.probe.due(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "lab", Name: name}})
		require.NoError(t, err)
		require.Equal(t, due{cluster: "c1", urgent: urgent}, d)
	}
	is("m00", true)
	is("m01", false)
	f.change(func(na *refitv1.NodeAccess) { na.Spec.SSH.User = "other" })
	f.off["m01"] = true
	f.look()
	f.off["m01"] = false
	f.clock.Step(soon)
	is("m01", true)
}

// TestWordsThatDifferEachTimeAreNoNews: nothing is written for the port that a login came from.
func TestWordsThatDifferEachTimeAreNoNews(t *testing.T) {
	f := newFleet(t, 5)
	n := 0
	words := func(met string) {
		n++
		for i := range 5 {
			f.down[fmt.Sprintf("m%02d", i)] = Finding{refitv1.ReasonUnreachable, fmt.Sprintf(
				"10.1.0.%d:22: read tcp 10.0.0.9:%d->10.1.0.%d:22: %s after %d.%ds; at %s", i, 30000+n, i, met, n, n%10, f.clock.Now().Format(time.RFC3339))}
		}
	}
	words("connection reset by peer")
	f.run(time.Hour + time.Minute)
	before := f.access()
	tried := len(f.tried)
	for range 50 {
		words("connection reset by peer")
		f.run(time.Minute)
	}
	require.Greater(t, len(f.tried), tried)
	require.Equal(t, before.ResourceVersion, f.access().ResourceVersion)
	words("no route to host")
	f.run(2 * time.Hour)
	require.Contains(t, f.access().Status.Unreached[0].Message, "no route to host", "what else is met, the status says")
}

func TestWhatLastsOfAMessage(t *testing.T) {
	for _, same := range [][2]string{
		{"read tcp 10.0.0.9:30001->10.1.0.3:22: reset", "read tcp 10.0.0.9:40002->10.1.0.3:22: reset"},
		{"read tcp [fd00::9]:30001->[fd00::3]:22: reset", "read tcp [fd00::9]:4->[fd00::3]:22: reset"},
		{"has not answered within 9.98s", "has not answered within 1m10s"},
		{"10.0.0.1:22: refused; 10.0.0.2:22: no route", "10.0.0.2:22: no route; 10.0.0.1:22: refused"},
	} {
		require.Equal(t, lasting(same[0]), lasting(same[1]))
	}
	for _, other := range [][2]string{
		{"dial tcp 10.1.0.3:22: refused", "dial tcp 10.1.0.4:22: refused"},
		{"dial tcp 10.1.0.3:22: refused", "dial tcp 10.1.0.3:2222: refused"},
		{"it showed SHA256:5sAb", "it showed SHA256:6sAb"},
	} {
		require.NotEqual(t, lasting(other[0]), lasting(other[1]))
	}
}

// TestWhereNobodyLogsInFailuresAge: an update that is gone, or a comparison, has found a node dark, and nobody would ever find out that it is back.
func TestWhereNobodyLogsInFailuresAge(t *testing.T) {
	dark := func(f *fleet) *refitv1.MachineUpdate {
		f.probe.Interval = 0
		var m clusterv1.Machine
		require.NoError(t, f.Get(t.Context(), client.ObjectKey{Namespace: "lab", Name: "m01"}, &m))
		mu := managementtest.MachineUpdate(&m, func(mu *refitv1.MachineUpdate) {
			mu.Status.Phase, mu.Status.Reason, mu.Status.Message = refitv1.PhaseWaiting, refused.Reason, refused.Message
		})
		require.NoError(t, f.Create(t.Context(), mu))
		f.run(5 * time.Minute)
		f.requireCounts(2, 0, 1)
		return mu
	}
	t.Run("an update that is gone", func(t *testing.T) {
		f := newFleet(t, 2)
		mu := dark(f)
		f.clock.Step(10 * lastsUntried)
		f.look()
		f.requireCounts(2, 0, 1) // it waits for the node all the time
		require.NoError(t, f.Delete(t.Context(), mu))
		f.run(time.Minute)
		f.clock.Step(lastsUntried - 5*time.Minute)
		f.look()
		f.requireCounts(2, 0, 1)
		f.clock.Step(10 * time.Minute)
		f.look()
		f.requireCounts(2, 0, 0)
		require.Empty(t, f.access().Status.Unreached)
		f.requireReady(metav1.ConditionUnknown, refitv1.NodeAccessNotTried, "of 2 nodes 2 were not tried yet, or too long ago")
		require.Empty(t, f.tried)
	})
	t.Run("restarts while others are reached", func(t *testing.T) {
		f := newFleet(t, 2)
		require.NoError(t, f.Delete(t.Context(), dark(f)))
		var m clusterv1.Machine
		require.NoError(t, f.Get(t.Context(), client.ObjectKey{Namespace: "lab", Name: "m00"}, &m))
		other := managementtest.MachineUpdate(&m)
		require.NoError(t, f.Create(t.Context(), other))
		for day := range 5 {
			f.clock.Step(24 * time.Hour)
			other.Status.Phase, other.Status.FinishedAt = refitv1.PhaseSucceeded, new(metav1.NewTime(f.clock.Now()))
			require.NoError(t, f.Status().Update(t.Context(), other))
			f.restart()
			f.probe.Interval = 0
			f.look()
			failed := 0
			if day < 2 {
				failed = 1
			}
			f.requireCounts(2, 1, failed)
		}
	})
	t.Run("restarts with more than are listed", func(t *testing.T) {
		f := newFleet(t, 30)
		for i := range 30 {
			f.down[fmt.Sprintf("m%02d", i)] = refused
		}
		f.run(time.Hour + time.Minute)
		f.requireCounts(30, 0, 30)
		f.restart()
		f.probe.Interval = 0 // whoever turns logins off does so with a restart
		f.look()
		f.requireCounts(30, 0, refitv1.MaxUnreachedMachines)
		f.clock.Step(lastsUntried)
		f.restart()
		f.probe.Interval = 0
		f.look()
		f.requireCounts(30, 0, 0)
	})
}
