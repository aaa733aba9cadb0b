package changemanagement

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// identified has an update have a UID of its own, as those of an API server do, and have been admitted under the policy a.
func identified(mu *refitv1.MachineUpdate) {
	mu.UID = types.UID("uid-" + mu.Name)
	if a := mu.Status.Admission; a != nil {
		a.Policies = []string{"a"}
	}
}

// goes deletes the Machine x, and its update with it.
func (w *world) goes() *refitv1.MachineUpdate {
	w.T.Helper()
	mu := get(w, "x", &refitv1.MachineUpdate{})
	require.NoError(w.T, w.Delete(w.T.Context(), get(w, "x", &clusterv1.Machine{})))
	require.NoError(w.T, w.Delete(w.T.Context(), mu))
	return mu
}

// TestWhatMachinesDidCountsWhenTheyAreGone: who replaces a Machine whose update has failed must not have the next one fail, too.
func TestWhatMachinesDidCountsWhenTheyAreGone(t *testing.T) {
	minuteAgo := inside.Add(-time.Minute)
	for name, tc := range map[string]struct {
		budget refitv1.Budget
		state  states
		says   string
		frees  func(*world) // what has it start again
	}{
		"a failure": {refitv1.Budget{StopAfterFailures: 1}, states{started(minuteAgo), failed}, "stopAfterFailures", func(w *world) {
			p := get(w, "a", &refitv1.ChangeManagementPolicy{})
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, refitv1.FailuresSeenAnnotation, text(inside))
			require.NoError(w.T, w.Update(w.T.Context(), p))
		}},
		"a start":         {refitv1.Budget{MaxStartsPerWindow: 1}, states{started(minuteAgo), ended}, "maxStartsPerWindow", func(w *world) { w.Clock.SetTime(opened.Add(7 * 24 * time.Hour)) }},
		"the last start":  {refitv1.Budget{MinSpacing: "10m"}, states{started(minuteAgo), ended}, "minSpacing", func(w *world) { w.Clock.SetTime(inside.Add(9 * time.Minute)) }},
		"one in the past": {refitv1.Budget{MaxStartsPerWindow: 1, MinSpacing: "10m"}, states{started(inside.Add(-7 * 24 * time.Hour)), ended}, "", nil},
	} {
		for how, deletes := range map[string]func(w *world, s *Status){
			"it was seen before": func(w *world, s *Status) {
				w.show(s)
				w.goes()
				w.gate = &Gate{Policies: w.policies, Client: w.Client, Live: w.Client, Clock: w.Clock, Metrics: w.gate.Metrics} // another leader
			},
			"it was not": func(w *world, s *Status) {
				var again []ctrl.Request
				s.depart(w.goes(), func(r ctrl.Request, _ time.Duration) { again = append(again, r) })
				require.Equal(w.T, []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: "fleet", Name: "a"}}}, again)
			},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				w := newWorld(t, fleet(map[string]states{"w": {waiting, identified}, "x": append(tc.state, identified, func(mu *refitv1.MachineUpdate) {
					mu.Status.FinishedAt = &metav1.Time{Time: minuteAgo}
				})}, nil, saturdays("a", budget(tc.budget)))...)
				s := w.status()
				before := w.ask("w")
				require.Equal(t, tc.says == "", before.Open, before.Message)
				deletes(w, s)
				for range 2 { // before and after the ledger is written
					w.Clock.SetTime(w.Clock.Now().Add(2 * time.Second))
					d := w.ask("w")
					require.Equal(t, tc.says == "", d.Open, d.Message)
					require.Contains(t, d.Message, tc.says)
					w.show(s)
				}
				if tc.frees != nil {
					tc.frees(w)
					w.Clock.SetTime(w.Clock.Now().Add(2 * time.Second))
					d := w.ask("w")
					require.True(t, d.Open, d.Message)
				}
			})
		}
	}
}

// TestWhoIsThereSaysItself: what a ledger knows of an update that is tried again, or that has failed, is not added to that.
func TestWhoIsThereSaysItself(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{"w": {waiting, identified}, "x": {started(opened), failed, identified, func(mu *refitv1.MachineUpdate) {
		mu.Status.FinishedAt = &metav1.Time{Time: inside}
	}}}, nil,
		saturdays("a", budget(refitv1.Budget{StopAfterFailures: 2, MaxStartsPerWindow: 2})))...)
	s := w.status()
	st, _ := w.show(s)
	require.Len(t, st.Ledger.Starts, 1)
	require.Len(t, st.Ledger.Failures, 1)
	require.True(t, w.ask("w").Open)
	w.edit("x", func(mu *refitv1.MachineUpdate) { mu.Status.Phase = refitv1.PhaseSucceeded })
	st, _ = w.show(s)
	require.Len(t, st.Ledger.Starts, 1)
	require.Empty(t, st.Ledger.Failures)
	w.Clock.SetTime(opened.Add(7 * 24 * time.Hour))
	st, _ = w.show(s)
	require.Nil(t, st.Ledger, "another window")
}

func TestALedgerIsBounded(t *testing.T) {
	l := ledgerOf(inside, created, saturdays("a"), nil)
	for i := range 2 * mostStarts {
		mu := update("m", started(inside.Add(time.Duration(i)*time.Second)), failed)
		mu.UID = types.UID(text(inside.Add(time.Duration(i) * time.Second)))
		mu.Status.FinishedAt = &metav1.Time{Time: inside}
		l.see(mu, created)
	}
	st := l.status(inside, Budget{MaxStartsPerWindow: 1, StopAfterFailures: 1})
	require.Len(t, st.Starts, mostStarts)
	require.Equal(t, inside.Add((2*mostStarts-1)*time.Second), st.Starts[0].At.Time, "the latest are kept")
	require.Len(t, st.Failures, mostFailures)
	require.Nil(t, l.status(inside, Budget{MaxConcurrent: 1}), "nobody asks for it")
}

// TestAStartThatWasTakenBackIsNone: a drain that gave up has changed nothing, and spends no budget.
func TestAStartThatWasTakenBackIsNone(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{"w": {waiting, identified}, "x": {started(inside.Add(-time.Minute)), identified}}, nil,
		saturdays("a", budget(refitv1.Budget{MaxStartsPerWindow: 1})))...)
	s := w.status()
	w.show(s)
	require.False(t, w.ask("w").Open)
	w.edit("x", waiting, func(mu *refitv1.MachineUpdate) { mu.Status.Admission, mu.Status.Starts = nil, nil })
	w.Clock.SetTime(inside.Add(2 * time.Second))
	require.True(t, w.ask("w").Open, "also before the ledger is written again")
	st, _ := w.show(s)
	require.Nil(t, st.Ledger)
}

// TestFailuresOfMachinesThatAreThere end as they say, whatever the ledger has.
func TestFailuresOfMachinesThatAreThere(t *testing.T) {
	for name, mend := range map[string]func(w *world){
		"it is no longer selected, and mended": func(w *world) {
			m := get(w, "x", &clusterv1.Machine{})
			m.Labels["pool"] = "other"
			require.NoError(w.T, w.Update(w.T.Context(), m))
			w.edit("x", ended)
		},
		"its update was made again": func(w *world) {
			require.NoError(w.T, w.Delete(w.T.Context(), get(w, "x", &refitv1.MachineUpdate{})))
			again := update("x", ended)
			again.UID = "uid-again"
			require.NoError(w.T, w.Create(w.T.Context(), again))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fleet(map[string]states{"w": {waiting, identified}, "x": {started(opened), failed, identified, func(mu *refitv1.MachineUpdate) {
				mu.Status.FinishedAt = &metav1.Time{Time: inside}
			}}}, map[string]func(*clusterv1.Machine){"w": ofPool("gpu"), "x": ofPool("gpu")}, saturdays("a", machines(map[string]string{"pool": "gpu"}), budget(refitv1.Budget{StopAfterFailures: 1})))...)
			s := w.status()
			w.show(s)
			require.False(t, w.ask("w").Open)
			mend(w)
			w.show(s)
			w.goes()
			w.show(s)
			w.Clock.SetTime(inside.Add(2 * time.Second))
			d := w.ask("w")
			require.True(t, d.Open, d.Message)
		})
	}
}

// TestAPolicyThatCanNotBeReadForgetsNothing: a calendar that is missing for a moment is no new window.
func TestAPolicyThatCanNotBeReadForgetsNothing(t *testing.T) {
	w := newWorld(t, fleet(map[string]states{"w": {waiting, identified}, "x": {started(opened.Add(time.Minute)), ended, identified}}, nil,
		saturdays("a", budget(refitv1.Budget{MaxStartsPerWindow: 1})))...)
	s := w.status()
	w.show(s)
	w.goes()
	zone := func(zone string, now time.Time) {
		w.Clock.SetTime(now)
		w.Change("a", func(s *spec) { s.MaintenanceSchedule.TimeZone = zone })
		w.Reread("a")
		w.show(s)
	}
	zone("Mars/Olympus", opened.Add(5*time.Hour)) // another day
	zone("UTC", opened.Add(5*time.Hour+time.Minute))
	require.False(t, w.ask("w").Open)
}

func TestFailuresSeen(t *testing.T) {
	for value, forgiven := range map[string]bool{"": false, "true": false, text(inside.Add(-time.Hour)): false, text(inside): true, text(inside.Add(time.Hour)): false} {
		p := saturdays("a")
		p.Annotations = map[string]string{refitv1.FailuresSeenAnnotation: value}
		p.Status.Ledger = &refitv1.Ledger{Failures: []refitv1.LedgerEntry{{Machine: "x", Update: "uid-x", At: metav1.NewTime(inside.Add(-time.Minute))}}}
		require.Equal(t, forgiven, len(ledgerOf(inside, created, p, nil).failures) == 0, value)
	}
}
