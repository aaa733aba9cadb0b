package changemanagement

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
	"github.com/capi-refit/refit/schedule"
)

// watching counts how often Machines are listed, and has writes fail.
type watching struct {
	client.Client
	lists int
	down  error
	then  func() // is called when they are
}

func (w *watching) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*clusterv1.MachineList); ok {
		w.lists++
		if then := w.then; then != nil {
			w.then = nil
			defer then()
		}
	}
	return w.Client.List(ctx, list, opts...)
}

func (w *watching) Status() client.SubResourceWriter { return refusing{w.Client.Status(), w} }

type refusing struct {
	client.SubResourceWriter
	w *watching
}

func (f refusing) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	if f.w.down != nil {
		return f.w.down
	}
	return f.SubResourceWriter.Update(ctx, obj, opts...)
}

// shownAgain returns a world whose policy is closed, the status of that, which is as it would be made, and what counts how often it is.
func shownAgain(t *testing.T, policy *refitv1.ChangeManagementPolicy) (*world, *Status, *watching) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), worker("w2"), update("w1", waiting), policy)
	w.Clock.SetTime(outside)
	s := w.status()
	counts := &watching{Client: s.Client}
	s.Client = counts
	require.NoError(t, s.Watch(t.Context(), managementtest.Silent{}))
	for range 3 { // a finalizer, and then the status
		w.show(s)
	}
	counts.lists = 0
	return w, s, counts
}

// TestAStatusIsMadeAgainWhenSomethingChanges and not before: a fleet waits for days.
func TestAStatusIsMadeAgainWhenSomethingChanges(t *testing.T) {
	w, s, counts := shownAgain(t, saturdays("a"))
	for range 8 {
		w.Clock.Step(statusRefresh)
		_, again := w.show(s)
		require.Equal(t, statusRefresh, again)
	}
	require.Zero(t, counts.lists)
	w.Clock.Step(stillFor)
	w.show(s)
	require.Equal(t, 1, counts.lists, "not all shows")

	for name, change := range map[string]func(w *world, s *Status){
		"a Machine": func(_ *world, s *Status) { s.changes.OnAdd(worker("w3"), false) },
		"an edit": func(w *world, _ *Status) {
			w.Change("a", func(s *spec) { s.Selector.Roles = []refitv1.Role{refitv1.WorkerRole} })
			w.Reread("a")
		},
		"somebody takes the counts": func(w *world, _ *Status) {
			p := get(w, "a", &refitv1.ChangeManagementPolicy{})
			p.Status.SelectedMachines = nil
			require.NoError(t, w.Client.Status().Update(t.Context(), p))
		},
		"a calendar is read again": func(w *world, _ *Status) { w.Reread("a") },
		"a soak that has failed": func(w *world, s *Status) {
			key := soakKey{policy: get(w, "a", &refitv1.ChangeManagementPolicy{}).UID, update: "u"}
			s.Gate.soaks.all = map[soakKey]refitv1.GateFailure{key: {}}
		},
		"an update that is gone": func(_ *world, s *Status) {
			s.depart(update("w1", started(outside), func(mu *refitv1.MachineUpdate) { mu.Status.Admission.Policies = []string{"a"} }), func(req ctrl.Request, _ time.Duration) {
				require.Equal(t, "a", req.Name)
			})
		},
		"an update that goes while it is made": func(w *world, s *Status) {
			gone := update("w1", started(outside), func(mu *refitv1.MachineUpdate) { mu.UID, mu.Status.Admission.Policies = "u", []string{"a"} })
			s.changes.OnDelete(gone) // its other handler comes later
			counts := s.Client.(*watching)
			counts.then = func() { s.depart(gone, func(ctrl.Request, time.Duration) {}) }
			w.show(s)
			counts.lists = 0
		},
		"the window opens": func(w *world, _ *Status) { w.Clock.SetTime(opened) },
		"it is deleted": func(w *world, _ *Status) {
			require.NoError(t, w.Delete(t.Context(), get(w, "a", &refitv1.ChangeManagementPolicy{})))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, s, counts := shownAgain(t, saturdays("a"))
			w.show(s)
			require.Zero(t, counts.lists)
			change(w, s)
			w.show(s)
			require.Equal(t, 1, counts.lists)
		})
	}
}

// TestAStatusThatTimeChangesIsMadeEachTime: near the end of a window, near a deadline, and by what gates answer.
func TestAStatusThatTimeChangesIsMadeEachTime(t *testing.T) {
	for name, policy := range map[string]*refitv1.ChangeManagementPolicy{
		"open":     saturdays("a", func(s *spec) { s.Strategy, s.MaintenanceSchedule = schedule.PermissiveStrategy, nil }),
		"deadline": saturdays("a", deadline(refitv1.Deadline{After: "1d"})),
	} {
		t.Run(name, func(t *testing.T) {
			w, s, counts := shownAgain(t, policy)
			for i := range 3 {
				w.Clock.Step(statusRefresh)
				w.show(s)
				require.Equal(t, i+1, counts.lists)
			}
		})
	}
}

// TestAStatusThatWasNotWrittenIsMadeAgain: the API server was down.
func TestAStatusThatWasNotWrittenIsMadeAgain(t *testing.T) {
	w, s, counts := shownAgain(t, saturdays("a"))
	counts.down = errors.New("it is down")
	require.NoError(t, w.Create(t.Context(), worker("w3")))
	s.changes.OnAdd(worker("w3"), false)
	_, err := s.Reconcile(t.Context(), policykindtest.Request("a"))
	require.ErrorIs(t, err, counts.down)
	counts.down = nil
	st, _ := w.show(s)
	require.EqualValues(t, 3, *st.SelectedMachines)
}
