package machineupdate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/workload"
)

// What the extension of these tests answers.
const (
	saysGoesOn = `{"status": "Success", "message": "the host adds memory", "retryAfterSeconds": 30}`
	saysDone   = `{"status": "Success"}`
	saysNo     = `{"status": "Failure", "message": "no memory"}`
)

func drains(u *refitv1.UpdaterRegistration) { u.Spec.Disturbs = refitv1.UpdaterDisturbsDrain }

// atWork has an updater begin, and go on.
func atWork(t *testing.T, change func(*refitv1.UpdaterRegistration)) (w *world, answer *string, calls *[]string) {
	w, text := newWorld(t), saysGoesOn
	calls = w.registered(&text, change)
	w.node.plans, w.node.applied = []node.Plan{writeA}, []node.Status{succeeded}
	w.ask()
	for range 20 {
		w.reconcile()
		if len(*calls) > 0 {
			break
		}
		w.clock.Step(10 * time.Second)
	}
	require.Len(t, *calls, 1)
	require.NotNil(t, w.update().Status.ApplyingSince)
	return w, &text, calls
}

// ends has the updater be done, and then the node.
func (w *world) endsWith(answer *string) {
	w.t.Helper()
	*answer = saysDone
	w.node.plans = []node.Plan{writeA, {}}
	w.clock.Step(31 * time.Second)
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	w.requireFree(false)
}

// requireAtWork demands that refit has not released the node.
func (w *world) requireAtWork(slot bool) {
	w.t.Helper()
	require.Equal(w.t, "refit/uid-1", *w.leaseOf().Spec.HolderIdentity)
	require.Equal(w.t, slot, w.update().Status.Slot != nil)
	require.False(w.t, w.update().Status.Updaters[0].Done)
}

// TestUpdaterThatTakesTheNodeDown is asked again while the node does not answer, and while it is the API server's.
func TestUpdaterThatTakesTheNodeDown(t *testing.T) {
	for name, apiServer := range map[string]error{"a worker": nil, "the only control plane": workload.ErrUnavailable} {
		t.Run(name, func(t *testing.T) {
			w, answer, calls := atWork(t, drains)
			w.node.dialErr, w.workload.Err = errRefused, apiServer
			for i := range 5 {
				w.clock.Step(31 * time.Second)
				w.reconcile()
				require.Len(t, *calls, 2+i)
				w.requirePhase(refitv1.PhaseApplying)
			}
			*answer = saysDone
			w.clock.Step(31 * time.Second)
			w.reconcile()
			require.Len(t, *calls, 7)
			require.NotEqual(t, refitv1.PhaseFailed, w.update().Status.Phase, "the node boots")

			w.node.dialErr, w.workload.Err = nil, nil
			w.endsWith(answer)
			require.Len(t, *calls, 7)
		})
	}
}

// TestNodeIsKeptWhileAnUpdaterIsAtWork: what is to be released is not, and the updater is not called meanwhile.
func TestNodeIsKeptWhileAnUpdaterIsAtWork(t *testing.T) {
	for name, tc := range map[string]struct {
		reason     string
		begin, end func(*world)
	}{
		"a hold":                   {refitv1.ReasonHold, func(w *world) { w.hold(true) }, func(w *world) { w.hold(false) }},
		"Cluster API asks no more": {refitv1.ReasonUpdater, func(w *world) { w.mark(false) }, func(w *world) { w.mark(true) }},
		"Cluster API takes the Machine": {refitv1.ReasonTaken, annotateWith(clusterv1.RemediateMachineAnnotation), func(w *world) {
			w.machine(func(m *clusterv1.Machine) { delete(m.Annotations, clusterv1.RemediateMachineAnnotation) })
		}},
	} {
		for disturbs, change := range map[string]func(*refitv1.UpdaterRegistration){"None": unchanged, "Drain": drains} {
			t.Run(name+", "+disturbs, func(t *testing.T) {
				w, answer, calls := atWork(t, change)
				tc.begin(w)
				w.node.dialErr = errRefused
				for range 3 {
					w.clock.Step(time.Minute)
					w.reconcile()
					st := w.requireWaiting(tc.reason, "UpdaterRegistration memory is at work on the machine")
					require.Contains(t, st.Message, "refit abandon -n lab m1")
					w.requireAtWork(disturbs == "Drain")
				}
				require.Len(t, *calls, 1)
				tc.end(w)
				w.node.dialErr = nil
				w.endsWith(answer)
			})
		}
	}
}

// TestSweepLeavesTheLeaseOfAnUpdaterAtWork, which may be all that there is on the node.
func TestSweepLeavesTheLeaseOfAnUpdaterAtWork(t *testing.T) {
	w, _, _ := atWork(t, unchanged)
	require.Nil(t, w.update().Status.Node)
	idle, err := (&update{Reconciler: w.reconciler}).idle(t.Context(), w.currentMachine())
	require.NoError(t, err)
	require.False(t, idle)
}

// TestWindowThatClosesWhileAnUpdaterIsAtWork neither holds that back nor the node's part, and there was one start.
func TestWindowThatClosesWhileAnUpdaterIsAtWork(t *testing.T) {
	for disturbs, change := range map[string]func(*refitv1.UpdaterRegistration){"None": unchanged, "Drain": drains} {
		t.Run(disturbs, func(t *testing.T) {
			w := under(t, restartA, nightly())
			answer := saysGoesOn
			calls := w.registered(&answer, change)
			w.node.plans = []node.Plan{restartA}
			w.clock.Step(2*time.Hour + 30*time.Minute)
			for range 20 {
				w.reconcile()
				w.clock.Step(10 * time.Second)
			}
			require.NotEmpty(t, *calls)
			require.Len(t, w.update().Status.Starts, 1)

			w.clock.Step(time.Hour)
			before := len(*calls)
			w.reconcile()
			require.Len(t, *calls, before+1)
			w.requirePhase(refitv1.PhaseApplying)
			w.node.plans = []node.Plan{restartA, {}}
			answer = saysDone
			w.clock.Step(31 * time.Second)
			w.reconcile()
			w.requirePhase(refitv1.PhaseSucceeded)
			require.Len(t, w.update().Status.Starts, 1)
		})
	}
}

// TestUpdaterWaitsForTheNode that is at work for specs that were asked for before.
func TestUpdaterWaitsForTheNode(t *testing.T) {
	w := newWorld(t)
	w.halfWay()
	running := node.Status{State: node.Running, Digest: w.update().Spec.Digest}
	answer := saysDone
	calls := w.registered(&answer, unchanged)
	w.setContent("two\n")
	w.ask()
	w.node.applied = []node.Status{running}
	for range 3 {
		w.reconcile()
		w.requireWaiting(refitv1.ReasonBusy, "the node works on specs that were asked for before")
		require.Empty(t, *calls)
	}
	w.node.plans, w.node.applied = []node.Plan{writeA, writeA, {}}, []node.Status{{State: node.Succeeded, Digest: running.Digest}, succeeded}
	w.reconcile()
	require.Len(t, *calls, 1)
	w.requirePhase(refitv1.PhaseSucceeded)
}

// TestUnfinishedUpdaterIsNotForgotten by other specs and by another try, though it is not registered any more.
func TestUnfinishedUpdaterIsNotForgotten(t *testing.T) {
	for name, again := range map[string]func(*world){
		"other specs": func(w *world) { w.setContent("two\n"); w.ask() },
		"another try": func(w *world) {
			mu := w.update()
			mu.Status.Phase, mu.Status.Reason = refitv1.PhaseFailed, "NodeReplaced"
			require.NoError(w.t, w.Status().Update(w.t.Context(), mu))
			w.annotate(refitv1.RetryAnnotation)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, answer, calls := atWork(t, unchanged)
			var u refitv1.UpdaterRegistration
			require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "memory"}, &u))
			require.NoError(t, w.Delete(t.Context(), u.DeepCopy()))
			again(w)
			w.node.dialErr = errRefused
			for range 3 {
				w.clock.Step(time.Minute)
				w.reconcile()
				w.requireWaiting(refitv1.ReasonUpdater, "UpdaterRegistration memory: it has begun its part and not said that it is done, and it is not registered for the Machine any more")
				w.requireAtWork(false)
			}
			require.NotContains(t, w.node.calls, "apply")

			u.ResourceVersion = ""
			status := u.Status
			require.NoError(t, w.Create(t.Context(), &u))
			u.Status = status
			require.NoError(t, w.Status().Update(t.Context(), &u))
			w.node.dialErr = nil
			w.endsWith(answer)
			require.Len(t, *calls, 2)
		})
	}
}

// TestOtherSpecsAskPoliciesAnew: an updater that is at work ends for the specs that are asked for by then, and the node's part waits for its window.
func TestOtherSpecsAskPoliciesAnew(t *testing.T) {
	w, answer, calls := atWork(t, drains)
	require.NoError(t, w.Create(t.Context(), nightly()))
	w.readPolicies()
	w.setContent("two\n")
	w.ask()
	*answer = saysDone
	w.node.plans = []node.Plan{restartA}
	w.reconcile()
	require.Len(t, *calls, 2)
	w.requireWaiting(refitv1.ReasonWindow, "OutsideWindow")
	require.NotContains(t, w.node.calls, "apply")
	w.clock.Step(2*time.Hour + 10*time.Minute)
	w.node.plans = []node.Plan{restartA, {}}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	require.Len(t, *calls, 2)
}

// TestUpdateOfASilentUpdater is abandoned, or goes on.
func TestUpdateOfASilentUpdater(t *testing.T) {
	for name, tc := range map[string]struct{ answer, says string }{
		"it is away":  {"", "UpdaterRegistration memory: it answers UpdateMachine with HTTP status 500; it is asked again every 10s"},
		"it fails":    {saysNo, "UpdaterRegistration memory: it answers UpdateMachine with Failure: no memory; it is asked again every 10s"},
		"it goes on":  {saysGoesOn, ""},
		"it is taken": {"gone", "it is not registered for the Machine any more"},
	} {
		t.Run(name, func(t *testing.T) {
			w, answer, _ := atWork(t, drains)
			if tc.answer == "gone" {
				u := &refitv1.UpdaterRegistration{}
				u.Name = "memory"
				require.NoError(t, w.Delete(t.Context(), u))
			} else {
				*answer = tc.answer
			}
			w.node.dialErr = errRefused
			for range 3 {
				w.clock.Step(31 * time.Second)
				w.reconcile()
			}
			if tc.says != "" {
				st := w.requireWaiting(refitv1.ReasonUpdater, tc.says)
				require.Contains(t, st.Message, "refit abandon -n lab m1")
			}
			w.requireAtWork(true)

			w.annotate(refitv1.AbandonAnnotation)
			w.reconcile()
			st := w.requirePhase(refitv1.PhaseFailed)
			require.Contains(t, st.Message, "what UpdaterRegistration memory has begun is not called to its end any more")
			require.Nil(t, st.Slot)
			require.Empty(t, st.Updaters)
			w.requireFree(false)
		})
	}
}

// TestUpdaterAtWorkWithoutRegisteredUpdaters has refit be started again without the flag.
func TestUpdaterAtWorkWithoutRegisteredUpdaters(t *testing.T) {
	w, _, _ := atWork(t, unchanged)
	w.reconciler.Registered = nil
	w.reconcile()
	w.requireWaiting(refitv1.ReasonUpdater, "refit runs without --registered-updaters")
	w.requireAtWork(false)
}

// TestRolledBackIsNotUntouched: what an updater has done stays, so that the node counts as changed.
func TestRolledBackIsNotUntouched(t *testing.T) {
	w, answer, _ := atWork(t, drains)
	*answer = saysDone
	w.node.applied = []node.Status{{State: node.Failed, RolledBack: true, Message: "restart x.service failed"}}
	w.clock.Step(31 * time.Second)
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseFailed)
	require.Contains(t, st.Message, "; UpdaterRegistration memory has done its part on the machine, which stays")
	require.NotNil(t, st.ApplyingSince)
	require.NotNil(t, st.Slot)
	require.Len(t, st.Starts, 1)
	w.requireFree(true)
}

// TestRollbackRedirectsAnUpdaterAtWork: it is called for what the owner wants.
func TestRollbackRedirectsAnUpdaterAtWork(t *testing.T) {
	w := failedWorker(t)
	answer := saysGoesOn
	calls := w.registered(&answer, unchanged)
	w.annotate(refitv1.RetryAnnotation)
	w.node.plans = []node.Plan{writeA}
	w.reconcile()
	require.Len(t, *calls, 1)
	w.requirePhase(refitv1.PhaseApplying)

	w.askRollback("2026-10-03T20:00:00Z alice")
	w.reconcile()
	require.Equal(t, secretContent+"\n", w.content())
	w.node.applied = []node.Status{succeeded}
	w.node.plans = []node.Plan{writeA, {}}
	answer = saysDone
	w.reconcile()
	require.Len(t, *calls, 2)
	require.Contains(t, (*calls)[1], secretContent)
	w.requirePhase(refitv1.PhaseSucceeded)
}

// judge says what of a change is left, and keeps what it was asked.
type judge struct {
	left  string
	err   error
	asked []byte
}

func (j *judge) Left(_ context.Context, request []byte) (string, error) {
	j.asked = request
	return j.left, j.err
}

// TestRollbackAsksRegisteredUpdaters whether they take back what refit's own updaters do not cover.
func TestRollbackAsksRegisteredUpdaters(t *testing.T) {
	for name, tc := range map[string]struct {
		judge judge
		state refitv1.RollbackState
		says  string
	}{
		"they do":          {judge{}, refitv1.RollbackWriting, ""},
		"they do not":      {judge{left: "spec.memory of the infrastructureMachine: no updater covers it"}, refitv1.RollbackRefused, "spec.memory of the infrastructureMachine"},
		"one is not there": {judge{err: errors.New("UpdaterRegistration memory: it is away")}, refitv1.RollbackPending, "it is away"},
	} {
		t.Run(name, func(t *testing.T) {
			w := failedWorker(t)
			w.reconciler.Disruptions = fixedRules(t, disruption.Rules{}) // nothing is known of the file
			w.reconciler.Judge = &tc.judge
			w.askRollback("2026-10-03T20:00:00Z alice")
			w.reconcile()
			st := w.update().Status
			require.Equal(t, tc.state, st.Rollback.State, st.Rollback.Message)
			require.Contains(t, st.Rollback.Message, tc.says)
			require.Equal(t, badContent, gjson.GetBytes(tc.judge.asked, "current.bootstrapConfig.spec.files.0.content").Str)
			require.Equal(t, secretContent+"\n", gjson.GetBytes(tc.judge.asked, "desired.bootstrapConfig.spec.files.0.content").Str)
			require.Equal(t, "m1", gjson.GetBytes(tc.judge.asked, "desired.machine.metadata.name").Str)
		})
	}
}
