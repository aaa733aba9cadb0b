package pending

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/schedule"
)

// atRest returns a world in which updates wait for their window, and of which all is told that there is to tell.
func atRest(t *testing.T) *world {
	w := newWorld(t, outside, append(fleet(sysctl), saturdays("a"), worker("w1"), worker("w2"), update("w1", held), update("w2", held))...)
	require.NoError(t, w.view.Watch(t.Context(), managementtest.Silent{}))
	for range 2 { // PendingChanges are there after the first
		w.show("MachineDeployment", "md")
		w.Clock.Step(refresh)
	}
	require.Len(t, w.view.rests, 1)
	return w
}

// TestWhatIsInAClusterIsReadWhenSomethingHasChanged in its namespace.
func TestWhatIsInAClusterIsReadWhenSomethingHasChanged(t *testing.T) {
	w := atRest(t)
	machines := 0
	w.OnRead = func(obj runtime.Object) {
		if _, ok := obj.(*clusterv1.MachineList); ok {
			machines++
		}
	}
	for range 3 {
		w.Reconcile(w.view, "c1")
	}
	require.Zero(t, machines)
	w.view.changes.OnAdd(worker("w1"), false)
	require.False(t, w.looks(), "it was of another Cluster")
	require.Equal(t, 1, machines)
}

// looks reports whether a reconcile finds out what waits.
func (w *world) looks() bool {
	w.view.last = nil
	w.Reconcile(w.view, "c1")
	return w.view.last != nil
}

// TestWhatRestsIsNotFoundOutAgain: a fleet waits for days, and nothing of it changes.
func TestWhatRestsIsNotFoundOutAgain(t *testing.T) {
	w := atRest(t)
	for w.Clock.Since(outside) < restsFor {
		require.False(t, w.looks(), "after %s", w.Clock.Since(outside))
		require.Equal(t, refresh, w.Reconcile(w.view, "c1").RequeueAfter)
		w.Clock.Step(refresh)
	}
	w.Clock.Step(refresh)
	require.True(t, w.looks(), "not all shows")
	require.False(t, w.looks(), "it rests again")
}

// comesFrom are the objects whose informer tells of a change in a Cluster. Other changes are looked for.
var comesFrom = map[string]client.Object{
	"a Machine": worker("w1"), "a policy": saturdays("a"), "another policy": saturdays("b"), "a Machine more": worker("w3"),
	"an update more": update("w3"), "an update less": update("w1"), "an update": update("w1"),
}

// TestWhatChangesIsFoundOutAgain at once, of all from which PendingChanges are found out.
func TestWhatChangesIsFoundOutAgain(t *testing.T) {
	overridden := func(m metav1.Object) { m.SetAnnotations(map[string]string{refitv1.RestrictiveUntilAnnotation: "true"}) }
	for name, change := range map[string]func(w *world){
		"a Cluster": func(w *world) {
			policykindtest.Change(w.World, "c1", &clusterv1.Cluster{}, func(c *clusterv1.Cluster) { overridden(c) })
		},
		"a Machine": func(w *world) {
			policykindtest.Change(w.World, "w1", &clusterv1.Machine{}, func(m *clusterv1.Machine) { overridden(m) })
		},
		"a MachineDeployment": func(w *world) {
			policykindtest.Change(w.World, "md", &clusterv1.MachineDeployment{}, func(md *clusterv1.MachineDeployment) { overridden(md) })
		},
		"a policy": func(w *world) {
			policykindtest.Change(w.World, "a", &refitv1.ChangeManagementPolicy{}, func(p *refitv1.ChangeManagementPolicy) { overridden(p) })
		},
		"another policy": func(w *world) { require.NoError(t, w.Create(t.Context(), saturdays("b"))) },
		"a Machine more": func(w *world) { require.NoError(t, w.Create(t.Context(), worker("w3", outdated))) },
		"an update more": func(w *world) { require.NoError(t, w.Create(t.Context(), update("w3", held))) },
		"an update less": func(w *world) {
			require.NoError(t, w.Delete(t.Context(), policykindtest.Get(w.World, "w1", &refitv1.MachineUpdate{})))
		},
		"an update": func(w *world) {
			mu := policykindtest.Get(w.World, "w1", &refitv1.MachineUpdate{})
			mu.Status.Phase = refitv1.PhaseApplying
			require.NoError(t, w.Client.Status().Update(t.Context(), mu))
		},
		"somebody deletes a PendingChange": func(w *world) {
			require.NoError(t, w.Delete(t.Context(), w.shown("MachineDeployment", "md")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := atRest(t)
			require.False(t, w.looks())
			change(w)
			if of, ok := comesFrom[name]; ok {
				w.view.changes.OnAdd(of, false)
			}
			require.True(t, w.looks())
		})
	}
}

// TestWhatDoesNotRest: what time alone changes, and what nothing tells.
func TestWhatDoesNotRest(t *testing.T) {
	for name, w := range map[string]*world{
		"what may start":                newWorld(t, inside, append(fleet(sysctl), saturdays("a"), worker("w1"), update("w1", held))...),
		"what is under way":             newWorld(t, inside, append(fleet(sysctl), saturdays("a"), worker("w1"), update("w1", started(inside)))...),
		"what Cluster API has to begin": newWorld(t, outside, append(fleet(sysctl), saturdays("a"), worker("w1", outdated))...),
	} {
		t.Run(name, func(t *testing.T) {
			for range 4 {
				require.True(t, w.looks())
				w.Clock.Step(refresh)
			}
		})
	}
	t.Run("a window that opens", func(t *testing.T) {
		w := newWorld(t, opened.Add(-4*refresh-time.Second), append(fleet(sysctl), saturdays("a"), worker("w1"), update("w1", held))...)
		for range 2 {
			require.True(t, w.looks())
			w.Clock.Step(refresh)
		}
		require.False(t, w.looks())
		w.Clock.SetTime(opened)
		require.True(t, w.looks())
	})
}

func TestTheRestOfAClusterThatIsGoneIsForgotten(t *testing.T) {
	w := atRest(t)
	require.NoError(t, w.Delete(t.Context(), policykindtest.Get(w.World, "c1", &clusterv1.Cluster{})))
	w.Reconcile(w.view, "c1")
	require.Empty(t, w.view.rests)
}

// TestAnOwnerThatCannotBeReadHidesNothing: its Cluster does not rest, and that is all.
func TestAnOwnerThatCannotBeReadHidesNothing(t *testing.T) {
	ofGone := func(m *clusterv1.Machine) {
		m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
		m.OwnerReferences[0].APIVersion, m.OwnerReferences[0].Kind, m.OwnerReferences[0].Name = "gone.example.org/v1//", "GoneControlPlane", "gone"
	}
	w := newWorld(t, outside, append(fleet(sysctl), saturdays("a"), worker("w1"), update("w1", held), worker("cp", ofGone))...)
	for range 4 {
		require.True(t, w.looks())
		require.EqualValues(t, 1, w.shown("MachineDeployment", "md").Status.Machines)
		w.Clock.Step(refresh)
	}
	require.NoError(t, w.Delete(t.Context(), policykindtest.Get(w.World, "w1", &refitv1.MachineUpdate{})))
	w.Reconcile(w.view, "c1")
	require.Nil(t, w.shown("MachineDeployment", "md"))
}

// TestWhatWasNotReadDoesNotRest: of many owners that change at once a view reads some, and tells of the others what was so before.
func TestWhatWasNotReadDoesNotRest(t *testing.T) {
	meta := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	for name, tc := range map[string]struct {
		read  deployment
		rests bool
	}{
		"it was":              {deployment{at: outside, generation: 2}, true},
		"as it was before":    {deployment{at: outside, generation: 1}, false},
		"it was not":          {deployment{}, false},
		"it could not be":     {deployment{at: outside, generation: 2, err: errors.New("down")}, false},
		"never, and is older": {deployment{generation: 2}, false},
	} {
		e := &entry{update: update("w1", held), owner: owner{kind: "MachineDeployment", name: "md"}, meta: meta, deployment: tc.read}
		require.Equal(t, tc.rests, e.rests(outside), name)
		e.reason = refitv1.PendingUnreadable
		require.False(t, e.rests(outside), name)
	}
}

// TestAPolicyThatIsReadLaterIsHeeded: the cache has had it when the view looked, and the policies that it asked had not.
func TestAPolicyThatIsReadLaterIsHeeded(t *testing.T) {
	w := atRest(t)
	w.Change("a", func(s *spec) {
		s.MaintenanceSchedule = &schedule.MaintenanceSchedule{Permit: []schedule.Permit{{Recurrence: "FREQ=WEEKLY;BYDAY=FR", StartTime: "20:00", Duration: "8h"}}}
	})
	w.Reconcile(w.view, "c1")
	w.Clock.Step(time.Second)
	w.Reread("a")
	w.Clock.Step(refresh)
	w.Reconcile(w.view, "c1")
	require.Equal(t, time.Friday, w.shown("Cluster", "c1").Status.EarliestStart.Weekday())
}
