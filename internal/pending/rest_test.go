package pending

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
)

// atRest returns a world in which updates wait for their window, and of which all is told that there is to tell.
func atRest(t *testing.T) *world {
	w := newWorld(t, outside, append(fleet(sysctl), saturdays("a"), worker("w1"), worker("w2"), update("w1", held), update("w2", held))...)
	for range 2 { // PendingChanges are there after the first
		w.show("MachineDeployment", "md")
		w.Clock.Step(refresh)
	}
	require.Len(t, w.view.rests, 1)
	return w
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
