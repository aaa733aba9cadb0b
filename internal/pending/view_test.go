package pending

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/schedule"
)

func TestWhatWaitsAtAMachineDeployment(t *testing.T) {
	onDelete := func(md *clusterv1.MachineDeployment) {
		md.Spec.Rollout.Strategy.Type = clusterv1.OnDeleteMachineDeploymentStrategyType
	}
	paused := func(md *clusterv1.MachineDeployment) { md.Spec.Paused = ptr.To(true) }
	elsewhere := func(md *clusterv1.MachineDeployment) { md.Spec.Template.Spec.Bootstrap.ConfigRef.Name = "gone" }
	refuse := func(s *spec) { s.WhenClosed = refitv1.RefuseWhenClosed }
	forbid := func(s *spec) { s.Replacement = refitv1.ForbidReplacement }
	failed := func(mu *refitv1.MachineUpdate) {
		mu.Status.Phase, mu.Status.Message = refitv1.PhaseFailed, "no space is left"
	}
	forSlot := func(mu *refitv1.MachineUpdate) {
		mu.Status.Phase, mu.Status.Reason = refitv1.PhaseWaiting, refitv1.ReasonSlot
	}
	first := metav1.NewTime(opened)
	for name, tc := range map[string]struct {
		objects []client.Object
		machine []func(*clusterv1.Machine)
		now     time.Time // outside, unless it is given
		cause   refitv1.PendingCause
		reason  string
		start   *metav1.Time
		says    string
		// without is how many are held back that have no MachineUpdate.
		without int32
	}{
		"a change in place, refused":              {objects: append(fleet(sysctl), saturdays("a", refuse)), cause: refitv1.PendingInPlace, reason: "OutsideWindow", start: &first, says: "opens at 2026-10-03T20:00:00Z", without: 1},
		"a change in place, before it commits":    {objects: append(fleet(sysctl), saturdays("a")), cause: refitv1.PendingInPlace, reason: "OutsideWindow", start: &first, without: 1},
		"a replacement":                           {objects: append(fleet(command), saturdays("a")), cause: refitv1.PendingReplacement, reason: "OutsideWindow", start: &first, says: "spec.postKubeadmCommands of the bootstrapConfig can't be updated in place", without: 1},
		"a replacement that a policy forbids":     {objects: append(fleet(command), saturdays("a", forbid)), cause: refitv1.PendingReplacement, reason: refitv1.PendingForbidden, says: "policy a forbids the replacement", without: 1},
		"of two policies the later one":           {objects: append(fleet(command), saturdays("a"), weekly("b", "SA", func(s *spec) { s.MaintenanceSchedule.Permit[0].StartTime = "22:00" })), cause: refitv1.PendingReplacement, reason: "OutsideWindow", start: ptr.To(metav1.NewTime(opened.Add(2 * time.Hour))), without: 1},
		"policies that never meet":                {objects: append(fleet(sysctl), saturdays("a"), weekly("b", "TU")), cause: refitv1.PendingInPlace, reason: "NoWindowWithinHorizon", without: 1},
		"an override counts":                      {objects: append(fleet(sysctl), saturdays("a")), machine: []func(*clusterv1.Machine){policykindtest.Annotation(refitv1.RestrictiveUntilAnnotation, "true")}, cause: refitv1.PendingInPlace, reason: "Overridden", says: "restrictive-until=true on Machine w1", without: 1},
		"in the window":                           {objects: append(fleet(sysctl), saturdays("a")), now: inside, cause: refitv1.PendingInPlace, reason: "Open", start: ptr.To(metav1.NewTime(inside))},
		"what disturbs nothing":                   {objects: append(fleet(harmless), saturdays("a")), cause: refitv1.PendingInPlace, reason: refitv1.NotMaterial, start: ptr.To(metav1.NewTime(outside))},
		"what disturbs nothing, and all is held":  {objects: append(fleet(harmless), saturdays("a", func(s *spec) { s.Hold = refitv1.HoldAll })), cause: refitv1.PendingInPlace, reason: "OutsideWindow", start: &first, without: 1},
		"no policy":                               {objects: fleet(command), cause: refitv1.PendingReplacement, reason: "Open", start: ptr.To(metav1.NewTime(outside))},
		"templates that are gone":                 {objects: append(fleet(sysctl, elsewhere), saturdays("a")), cause: refitv1.PendingUnknown, reason: "OutsideWindow", start: &first, says: "is not there", without: 1},
		"nobody deletes the Machine":              {objects: append(fleet(sysctl, onDelete), saturdays("a")), cause: refitv1.PendingReplacement, reason: refitv1.PendingOnDelete, says: "OnDelete"},
		"the MachineDeployment is paused":         {objects: append(fleet(sysctl, paused), saturdays("a")), cause: refitv1.PendingInPlace, reason: refitv1.PendingOwnerPaused, says: "the MachineDeployment is paused"},
		"an update that a policy holds":           {objects: append(fleet(sysctl), saturdays("a"), update("w1", held)), cause: refitv1.PendingInPlace, reason: "OutsideWindow", start: &first},
		"an update that has failed":               {objects: append(fleet(sysctl), saturdays("a"), update("w1", failed)), cause: refitv1.PendingInPlace, reason: refitv1.PendingFailed, says: "no space is left"},
		"an update that waits for something else": {objects: append(fleet(sysctl), update("w1", forSlot)), cause: refitv1.PendingInPlace, reason: refitv1.ReasonSlot, start: ptr.To(metav1.NewTime(outside))},
	} {
		t.Run(name, func(t *testing.T) {
			now := outside
			if !tc.now.IsZero() {
				now = tc.now
			}
			w := newWorld(t, now, append(tc.objects, worker("w1", append(tc.machine, outdated)...), worker("w2"))...)
			p := w.show("MachineDeployment", "md")
			require.NotNil(t, p)
			require.Equal(t, refitv1.PendingChangeSpec{Cluster: "c1", Owner: refitv1.PendingOwner{Kind: "MachineDeployment", Name: "md"}, Role: refitv1.WorkerRole}, p.Spec)
			st := p.Status
			require.EqualValues(t, 1, st.Machines, "w2 is as it should be")
			require.Equal(t, []refitv1.PendingCount{{Cause: tc.cause, Machines: 1}}, st.Causes)
			require.Equal(t, "w1", st.List[0].Name)
			require.Equal(t, tc.reason, st.List[0].Reason)
			require.True(t, st.EarliestStart.Equal(tc.start), "%v", st.EarliestStart)
			require.True(t, st.List[0].EarliestStart.Equal(tc.start))
			require.Equal(t, tc.start != nil, st.LastDone != nil)
			c := apimeta.FindStatusCondition(st.Conditions, refitv1.ChangePendingCondition)
			require.Equal(t, metav1.ConditionTrue, c.Status)
			require.Equal(t, string(tc.cause), c.Reason)
			require.Contains(t, c.Message, tc.says)
			var without int32
			for _, of := range st.Policies {
				without = max(without, of.Held)
			}
			require.Equal(t, tc.without, without)

			ofCluster := w.shown("Cluster", "c1")
			require.Equal(t, st.Causes, ofCluster.Status.Causes)
			require.Empty(t, ofCluster.Spec.Role)
			require.Equal(t, "uid-md", string(p.OwnerReferences[0].UID))
			require.Equal(t, "uid-c1", string(ofCluster.OwnerReferences[0].UID))
		})
	}
}

// topology has the Cluster's topology want a version that its parts have not been asked for yet.
func topology(c *clusterv1.Cluster) {
	c.Spec.Topology.Version = "v1.36.1"
	c.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.ClusterTopologyReconciledCondition, Status: metav1.ConditionFalse, Reason: clusterv1.ClusterTopologyReconciledClusterUpgradingReason,
		LastTransitionTime: metav1.NewTime(outside),
	}}
}

func TestAnUpgradeThatAHookHolds(t *testing.T) {
	objects := append(fleet(""), kcp(), worker("w1"), worker("w2"), controlPlane("cp1"), weekly("cp", "SA", kind.Roles(refitv1.ControlPlaneRole)), weekly("w", "SU", kind.Roles(refitv1.WorkerRole)),
		worker("other", func(m *clusterv1.Machine) { delete(m.Labels, clusterv1.ClusterTopologyOwnedLabel) }))
	topology(objects[0].(*clusterv1.Cluster))
	w := newWorld(t, outside, objects...)
	of := func(kind, name string) refitv1.PendingChangeStatus {
		p := w.show(kind, name)
		require.NotNil(t, p, name)
		return p.Status
	}
	st := of("KubeadmControlPlane", "kcp")
	require.Equal(t, []refitv1.PendingCount{{Cause: refitv1.PendingUpgrade, Machines: 1}}, st.Causes)
	require.True(t, st.EarliestStart.Time.Equal(opened))
	require.True(t, st.LastDone.Time.Equal(opened.Add(10*time.Minute)))
	require.Equal(t, []refitv1.PendingPolicy{{Name: "cp", Machines: 1, Held: 1}}, st.Policies)
	st = of("MachineDeployment", "md")
	require.Equal(t, []refitv1.PendingCount{{Cause: refitv1.PendingUpgrade, Machines: 2}}, st.Causes)
	require.True(t, st.EarliestStart.Time.Equal(opened.Add(24*time.Hour)), "%s", st.EarliestStart)
	require.True(t, st.LastDone.Time.Equal(opened.Add(24*time.Hour+20*time.Minute)), "one after the other: %s", st.LastDone)
	st = of("Cluster", "c1")
	require.EqualValues(t, 3, st.Machines)
	require.True(t, st.EarliestStart.Time.Equal(opened))

	w.Change("cp", func(s *spec) { s.Strategy, s.MaintenanceSchedule = "Restrictive", nil })
	w.Reread("cp")
	w.Clock.Step(time.Minute)
	st = of("MachineDeployment", "md")
	require.Nil(t, st.EarliestStart)
	require.Equal(t, refitv1.PendingControlPlane, st.List[0].Reason, "the control plane comes first")

	cluster := policykindtest.Get(w.World, "c1", &clusterv1.Cluster{})
	cluster.Status.Conditions[0].Status = metav1.ConditionTrue
	require.NoError(t, w.Update(t.Context(), cluster))
	w.Clock.Step(time.Minute)
	require.Nil(t, w.show("Cluster", "c1"), "nothing waits any more")
	require.Nil(t, w.shown("MachineDeployment", "md"))
}

// TestWhatAChangeIsHasASay has restarts on Saturdays, all else of the configuration on Sundays, and versions on Mondays.
func TestWhatAChangeIsHasASay(t *testing.T) {
	scoped := weekly("a", "SA", func(s *spec) {
		permit := s.MaintenanceSchedule.Permit[0]
		for day, changes := range map[string]*schedule.PermittedChanges{
			"SU": {Kinds: []schedule.Kind{schedule.ConfigurationKind}}, "MO": {Kinds: []schedule.Kind{schedule.PatchVersionKind}},
		} {
			permit.Recurrence, permit.Changes = "FREQ=WEEKLY;BYDAY="+day, changes
			s.MaintenanceSchedule.Permit = append(s.MaintenanceSchedule.Permit, permit)
		}
		s.MaintenanceSchedule.Permit[0].Changes = &schedule.PermittedChanges{MaxDisruption: "Restart"}
	})
	day := 24 * time.Hour
	for name, tc := range map[string]struct {
		objects []client.Object
		machine []func(*clusterv1.Machine)
		start   time.Time
		class   refitv1.PendingClass
	}{
		"a restart":     {fleet(sysctl), []func(*clusterv1.Machine){outdated}, opened, refitv1.PendingClass{Kinds: []schedule.Kind{schedule.ConfigurationKind}, Disruption: "Restart"}},
		"a replacement": {fleet(command), []func(*clusterv1.Machine){outdated}, opened.Add(day), refitv1.PendingClass{Kinds: []schedule.Kind{schedule.ConfigurationKind}, Disruption: "Replace"}},
		"an upgrade":    {fleet(""), nil, opened.Add(2 * day), refitv1.PendingClass{Kinds: []schedule.Kind{schedule.PatchVersionKind}, Disruption: "Replace"}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.machine == nil {
				topology(tc.objects[0].(*clusterv1.Cluster))
			}
			st := newWorld(t, outside, append(tc.objects, scoped.DeepCopy(), worker("w1", tc.machine...))...).show("MachineDeployment", "md").Status
			require.True(t, st.EarliestStart.Time.Equal(tc.start), "%s", st.EarliestStart)
			require.True(t, st.LastDone.Time.Equal(tc.start.Add(10*time.Minute)), "%s", st.LastDone)
			require.Equal(t, []refitv1.PendingPolicy{{Name: "a", Machines: 1, Held: 1, Classes: []refitv1.PendingClass{tc.class}}}, st.Policies)
		})
	}
}

func TestAnUpgradeThatTheTopologyDefers(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations [2]string // of the MachineDeployments a and b of the topology
		waits       [2]bool
	}{
		"none":                      {},
		"one is deferred":           {[2]string{clusterv1.ClusterTopologyDeferUpgradeAnnotation, ""}, [2]bool{true, false}},
		"the sequence is held":      {[2]string{clusterv1.ClusterTopologyHoldUpgradeSequenceAnnotation, ""}, [2]bool{true, true}},
		"the rest of it is held":    {[2]string{"", clusterv1.ClusterTopologyHoldUpgradeSequenceAnnotation}, [2]bool{false, true}},
		"the other one is deferred": {[2]string{"", clusterv1.ClusterTopologyDeferUpgradeAnnotation}, [2]bool{false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(fleet(""), saturdays("p"))
			c := objects[0].(*clusterv1.Cluster)
			topology(c)
			for i, md := range []string{"a", "b"} {
				one := clusterv1.MachineDeploymentTopology{Name: md}
				if tc.annotations[i] != "" {
					one.Metadata.Annotations = map[string]string{tc.annotations[i]: ""}
				}
				c.Spec.Topology.Workers.MachineDeployments = append(c.Spec.Topology.Workers.MachineDeployments, one)
				objects = append(objects, worker("w-"+md, policykindtest.Label(clusterv1.ClusterTopologyMachineDeploymentNameLabel, md)))
			}
			st := newWorld(t, outside, objects...).show("Cluster", "c1").Status
			got := map[string]bool{}
			for _, m := range st.List {
				got[m.Name] = m.Reason == refitv1.PendingDeferred
				require.Equal(t, got[m.Name], m.EarliestStart == nil)
			}
			require.Equal(t, map[string]bool{"w-a": tc.waits[0], "w-b": tc.waits[1]}, got)
		})
	}
}

func TestOneMachineThatCannotBeReadHidesNoOthers(t *testing.T) {
	of := func(m *clusterv1.Machine) {
		m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
		m.OwnerReferences[0].APIVersion, m.OwnerReferences[0].Kind, m.OwnerReferences[0].Name = "gone.example.org/v1//", "GoneControlPlane", "gone"
	}
	w := newWorld(t, outside, append(fleet(command), saturdays("a"), worker("w1", outdated), worker("w2", outdated, of))...)
	st := w.show("Cluster", "c1").Status
	require.EqualValues(t, 2, st.Machines)
	require.Equal(t, "w1", st.List[0].Name)
	require.NotNil(t, st.List[0].EarliestStart)
	require.Equal(t, refitv1.PendingUnreadable, st.List[1].Reason)
	require.Nil(t, st.LastDone)
}

// TestWhatIsNotTold has a Machine that goes anyway, one whose Node has not told its version yet, and one at whose change Cluster API is about to ask.
func TestWhatIsNotTold(t *testing.T) {
	updating := func(m *clusterv1.Machine) {
		outdated(m)
		m.Status.Conditions[0].Reason = clusterv1.MachineUpToDateUpdatingReason
	}
	deleted := func(m *clusterv1.Machine) {
		m.DeletionTimestamp, m.Finalizers = ptr.To(metav1.NewTime(outside)), []string{"a/b"}
	}
	w := newWorld(t, outside, append(fleet(command), saturdays("a"), worker("w1", outdated, deleted), worker("w2", updating))...)
	require.Nil(t, w.show("Cluster", "c1"))
	require.NoError(t, w.Create(t.Context(), worker("w3", updating, policykindtest.Annotation(clusterv1.UpdateInProgressAnnotation, ""))))
	w.Clock.Step(time.Minute)
	st := w.show("MachineDeployment", "md").Status
	require.Equal(t, []refitv1.PendingCount{{Cause: refitv1.PendingInPlace, Machines: 1}}, st.Causes)
	require.Equal(t, "w3", st.List[0].Name)
}

func TestAPausedClusterWaitsForNoPolicy(t *testing.T) {
	objects := append(fleet(sysctl), worker("w1", outdated), saturdays("a"), worker("w2", outdated), update("w2", held))
	objects[0].(*clusterv1.Cluster).Spec.Paused = ptr.To(true)
	w := newWorld(t, outside, objects...)
	st := w.show("Cluster", "c1").Status
	require.EqualValues(t, 2, st.Machines)
	require.Equal(t, refitv1.PendingClusterPaused, st.List[0].Reason)
	require.Equal(t, refitv1.PendingClusterPaused, st.List[1].Reason)
	require.Empty(t, st.Policies, "no policy holds it back")
	require.Nil(t, st.LastDone)
}

func TestWhatIsUnderWayDoesNotWait(t *testing.T) {
	w := newWorld(t, inside, append(fleet(sysctl), saturdays("a"), worker("w1", outdated), update("w1", started(inside)), worker("w2", outdated), update("w2", held))...)
	st := w.show("MachineDeployment", "md").Status
	require.EqualValues(t, 1, st.Machines)
	require.EqualValues(t, 1, st.UnderWay)
	require.Equal(t, "w2", st.List[0].Name)
	require.True(t, st.LastDone.Time.Equal(inside.Add(20*time.Minute)), "w2 waits for w1: %s", st.LastDone)
}

func TestWhatHasNotChangedIsNotWritten(t *testing.T) {
	for name, now := range map[string]time.Time{"closed": outside, "open": inside} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, now, append(fleet(command), saturdays("a"), worker("w1", outdated), worker("w2", outdated))...)
			before := w.show("MachineDeployment", "md")
			writes := w.StatusWrites
			require.Equal(t, 2, writes, "of the MachineDeployment and of the Cluster")
			for range 10 {
				w.Clock.Step(time.Minute + 300*time.Millisecond)
				require.Positive(t, w.Reconcile(w.view, "c1").RequeueAfter, "time passes")
			}
			require.Equal(t, writes, w.StatusWrites)
			require.Equal(t, before, w.shown("MachineDeployment", "md"))
		})
	}
}

// TestAChangeThatGoesThroughAFleetIsWrittenNowAndThen has a Machine more come to wait every ten seconds.
func TestAChangeThatGoesThroughAFleetIsWrittenNowAndThen(t *testing.T) {
	w := newWorld(t, inside, append(fleet(command), saturdays("a"), worker("w0", outdated))...)
	w.show("MachineDeployment", "md")
	writes := w.StatusWrites
	for i := range 12 {
		require.NoError(t, w.Create(t.Context(), worker(fmt.Sprintf("x%d", i), outdated)))
		w.Clock.Step(again)
		w.show("MachineDeployment", "md")
	}
	require.LessOrEqual(t, w.StatusWrites-writes, 2*6, "two objects")
	w.Clock.Step(refresh)
	require.EqualValues(t, 13, w.show("MachineDeployment", "md").Status.Machines, "all of it in the end")
	// What becomes of them is told at once.
	require.NoError(t, w.Create(t.Context(), worker("y", outdated)))
	require.NoError(t, w.Create(t.Context(), update("y", held)))
	for i := range 12 {
		require.NoError(t, w.Delete(t.Context(), policykindtest.Get(w.World, fmt.Sprintf("x%d", i), &clusterv1.Machine{})))
	}
	require.NoError(t, w.Delete(t.Context(), policykindtest.Get(w.World, "w0", &clusterv1.Machine{})))
	w.Clock.Step(again)
	require.Equal(t, string(refitv1.PendingInPlace), w.show("MachineDeployment", "md").Status.Conditions[0].Reason)
}

// TestManyPendingChangesAreWrittenLessOften bounds how many are written in a second, however many say something else, and how old one may be.
func TestManyPendingChangesAreWrittenLessOften(t *testing.T) {
	start := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	p := func(i int) *refitv1.PendingChange {
		return &refitv1.PendingChange{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: fmt.Sprint(i)}}
	}
	for _, tc := range []struct {
		many  int
		waits time.Duration
	}{{1, refresh - again}, {100, refresh - again}, {300, time.Minute}, {5000, writtenAtMost}} {
		clock := clocktesting.NewFakeClock(start)
		v := &View{Clock: clock, written: map[types.NamespacedName]time.Time{}}
		for i := range tc.many {
			v.written[client.ObjectKeyFromObject(p(i))] = start
		}
		clock.SetTime(start.Add(tc.waits - 1))
		require.True(t, v.justWritten(p(0)), "of %d", tc.many)
		clock.SetTime(start.Add(tc.waits))
		require.False(t, v.justWritten(p(0)), "of %d", tc.many)
	}
}

// TestAStatusThatWasNotWritten: refit can die between the two writes.
func TestAStatusThatWasNotWritten(t *testing.T) {
	w := newWorld(t, outside, append(fleet(command), saturdays("a"), worker("w1", outdated))...)
	p := w.show("MachineDeployment", "md")
	p.Status = refitv1.PendingChangeStatus{}
	require.NoError(t, w.Client.Status().Update(t.Context(), p))
	require.EqualValues(t, 1, w.show("MachineDeployment", "md").Status.Machines)
}

// ticking is a clock that goes on between any two looks at it.
type ticking struct{ *clocktesting.FakeClock }

func (c ticking) Now() time.Time {
	c.Step(time.Millisecond)
	return c.FakeClock.Now()
}

func TestWhatMayStartIsHeldByNoPolicyWhileTimePasses(t *testing.T) {
	w := newWorld(t, inside, append(fleet(command), saturdays("a"), worker("w1", outdated))...)
	w.view.Clock, w.view.Gate.Clock = ticking{w.Clock}, ticking{w.Clock}
	st := w.show("MachineDeployment", "md").Status
	require.Equal(t, []refitv1.PendingPolicy{{Name: "a", Machines: 1}}, st.Policies)
}

// TestWhereNothingWaitsNoMachineIsLookedAt counts what is read: a fleet is large, and Clusters change often.
func TestWhereNothingWaitsNoMachineIsLookedAt(t *testing.T) {
	objects := append(fleet(sysctl), saturdays("a"))
	for i := range 50 {
		objects = append(objects, worker(fmt.Sprintf("w%d", i)))
	}
	w := newWorld(t, outside, objects...)
	w.OnRead = func(runtime.Object) { w.reads++ }
	require.Zero(t, w.Reconcile(w.view, "c1"), "what comes to wait has it looked at again")
	require.Equal(t, 6, w.reads)
	w.Reconcile(w.view, "c1")
	require.Equal(t, 8, w.reads, "the others Clusters of a namespace are looked at with it")
}

func TestADeletedOwnerIsToldNoMore(t *testing.T) {
	w := newWorld(t, outside, append(fleet(command), saturdays("a"), worker("w1", outdated))...)
	require.NotNil(t, w.show("MachineDeployment", "md"))
	require.NoError(t, w.Delete(t.Context(), policykindtest.Get(w.World, "md", &clusterv1.MachineDeployment{})))
	w.Clock.Step(time.Minute)
	require.Nil(t, w.show("MachineDeployment", "md"))
	require.Nil(t, w.shown("Cluster", "c1"))
}

func TestAListIsBounded(t *testing.T) {
	objects := append(fleet(command), saturdays("a"))
	for i := range refitv1.MaxPendingMachines + 7 {
		objects = append(objects, worker(fmt.Sprintf("w%03d", i), outdated))
	}
	st := newWorld(t, outside, objects...).show("MachineDeployment", "md").Status
	require.Len(t, st.List, refitv1.MaxPendingMachines)
	require.EqualValues(t, 7, st.More)
	require.EqualValues(t, refitv1.MaxPendingMachines+7, st.Machines)
	require.Equal(t, "w000", st.List[0].Name)
}

// TestADifferenceIsReadOnce: all Machines of a MachineSet have the same one, and it is known until the owner changes.
func TestADifferenceIsReadOnce(t *testing.T) {
	w := newWorld(t, outside, append(fleet(command), saturdays("a"), worker("w1", outdated), worker("w2", outdated))...)
	templates := 0
	w.OnRead = func(obj runtime.Object) {
		if obj.GetObjectKind().GroupVersionKind().Kind == "KubeadmConfigTemplate" {
			templates++
		}
	}
	w.show("MachineDeployment", "md")
	require.Equal(t, 4, templates, "two of the MachineSet, two of the MachineDeployment")
	w.Clock.Step(time.Minute)
	w.show("MachineDeployment", "md")
	require.Equal(t, 4, templates)
	policykindtest.Change(w.World, "md", &clusterv1.MachineDeployment{}, func(md *clusterv1.MachineDeployment) {
		md.Spec.Template = machineSpec("old")
		md.Spec.Template.Spec.Version = "v1.36.9"
	})
	w.Clock.Step(time.Minute)
	st := w.show("MachineDeployment", "md").Status
	require.Equal(t, 8, templates)
	require.Contains(t, st.Conditions[0].Message, "spec.version of the machine can't be updated in place: no KubernetesSource")
}
