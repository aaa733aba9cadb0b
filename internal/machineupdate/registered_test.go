package machineupdate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/registered"
	"github.com/capi-refit/refit/internal/registered/registeredtest"
)

// registered has an extension be an updater that answers by what it is told, and returns which requests it has got.
func (w *world) registered(answer *string, change func(*refitv1.UpdaterRegistration)) *[]string {
	var calls []string
	u := registeredtest.Extension(w.t, "memory", func(_ string, request []byte) any {
		w.node.mu.Lock()
		defer w.node.mu.Unlock()
		calls = append(calls, string(request))
		w.node.calls = append(w.node.calls, "updater")
		if *answer == "" {
			return nil
		}
		return *answer
	})
	change(u)
	status := u.Status
	require.NoError(w.t, w.Create(w.t.Context(), u))
	u.Status = status
	require.NoError(w.t, w.Status().Update(w.t.Context(), u))
	w.reconciler.Registered = &registered.Registry{Client: w, Live: w}
	return &calls
}

func unchanged(*refitv1.UpdaterRegistration) {}

// TestRegisteredUpdaterIsCalledBeforeTheNode: until it says done; and once it has, not again.
func TestRegisteredUpdaterIsCalledBeforeTheNode(t *testing.T) {
	w := newWorld(t)
	answer := `{"status": "Success", "message": "the host adds memory", "retryAfterSeconds": 30}`
	calls := w.registered(&answer, unchanged)
	w.node.plans, w.node.applied = []node.Plan{writeA, writeA, {}}, []node.Status{succeeded}
	require.False(t, w.ask())
	require.Positive(t, w.reconcile().RequeueAfter)
	require.Len(t, *calls, 1)
	require.Equal(t, "UpdateMachineRequest", gjson.Get((*calls)[0], "kind").Str)
	require.Equal(t, "m1", gjson.Get((*calls)[0], "desired.machine.metadata.name").Str)
	require.Equal(t, "/etc/app/a", gjson.Get((*calls)[0], "desired.bootstrapConfig.spec.files.0.path").Str)
	mu := w.update()
	require.Equal(t, refitv1.PhaseApplying, mu.Status.Phase)
	require.Equal(t, "UpdaterRegistration memory: the host adds memory", mu.Status.Message)
	require.NotNil(t, mu.Status.ApplyingSince)
	require.NotContains(t, w.node.calls, "apply")

	w.reconcile()
	require.Len(t, *calls, 1, "it has said when to ask it again")
	w.clock.Step(31 * time.Second)
	answer = `{"status": "Success"}`
	w.reconcile()
	require.Len(t, *calls, 2)
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
	require.True(t, w.update().Status.Updaters[0].Done)
	require.Contains(t, w.node.calls, "apply")
	require.True(t, w.ask())
}

// TestWhoseFaultItIs: an extension that fails is asked again, and nothing else is done meanwhile.
func TestWhoseFaultItIs(t *testing.T) {
	for name, tc := range map[string]struct{ answer, says string }{
		"it fails":       {`{"status": "Failure", "message": "no memory"}`, "UpdaterRegistration memory: it answers UpdateMachine with Failure: no memory"},
		"it is broken":   {"", "UpdaterRegistration memory: it answers UpdateMachine with HTTP status 500"},
		"it is no hook":  {"hello", "UpdaterRegistration memory: its answer to UpdateMachine can't be read"},
		"it says no why": {`{"status": "Failure"}`, "UpdaterRegistration memory: it answers UpdateMachine with Failure: without a message"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			answer := tc.answer
			w.registered(&answer, unchanged)
			w.node.plans, w.node.applied = []node.Plan{writeA, writeA, {}}, []node.Status{succeeded}
			w.ask()
			require.Positive(t, w.reconcile().RequeueAfter)
			w.requireWaiting(refitv1.ReasonUpdater, tc.says+"; it is asked again every 10s")
			require.NotContains(t, w.node.calls, "apply")
			require.False(t, w.ask())

			answer = `{"status": "Success"}`
			w.clock.Step(time.Minute)
			w.reconcile()
			require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
		})
	}
}

// TestDoneIsRemembered has refit end after an updater has said that it is done.
func TestDoneIsRemembered(t *testing.T) {
	w := newWorld(t)
	answer := `{"status": "Success"}`
	calls := w.registered(&answer, unchanged)
	w.node.plans, w.node.applyErr = []node.Plan{writeA}, errRefused
	w.ask()
	w.reconcile()
	require.Len(t, *calls, 1)
	require.True(t, w.update().Status.Updaters[0].Done)
	w.node.plans, w.node.applyErr, w.node.applied = []node.Plan{writeA, {}}, nil, []node.Status{succeeded}
	w.reconcile()
	require.Len(t, *calls, 1)
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
}

// TestBlockedNodeNamesUpdaters: what the node lacks may be what an updater was to bring, and has said that it has.
func TestBlockedNodeNamesUpdaters(t *testing.T) {
	blocked := node.Plan{Blocked: []node.Problem{{Path: "/opt/b", Reason: "no rule says what a change of /opt/b takes on a node", Ruled: true}}}
	w := newWorld(t)
	answer := saysDone
	calls := w.registered(&answer, unchanged)
	w.node.plans = []node.Plan{blocked}
	w.ask()
	w.reconcile()
	require.Contains(t, w.requireWaiting(refitv1.ReasonBlocked, "no rule says").Message, "UpdaterRegistration memory is not called before that")
	require.Empty(t, *calls)

	w = newWorld(t)
	calls = w.registered(&answer, unchanged)
	w.node.plans = []node.Plan{writeA, blocked}
	w.ask()
	w.reconcile()
	require.Len(t, *calls, 1)
	require.Contains(t, w.requireWaiting(refitv1.ReasonBlocked, "no rule says").Message, "UpdaterRegistration memory has said that its part is done")
	require.NotContains(t, w.node.calls, "apply")
}

// TestRegisteredUpdaterThatDrains has pods leave before it is called.
func TestRegisteredUpdaterThatDrains(t *testing.T) {
	w := newWorld(t)
	answer := `{"status": "Success", "retryAfterSeconds": 5}`
	calls := w.registered(&answer, func(u *refitv1.UpdaterRegistration) { u.Spec.Disturbs = refitv1.UpdaterDisturbsDrain })
	w.node.plans = []node.Plan{{}}
	w.ask()
	for range 20 {
		w.reconcile()
		w.clock.Step(10 * time.Second)
		if len(*calls) > 0 {
			break
		}
	}
	require.NotEmpty(t, *calls)
	mu := w.update()
	require.NotNil(t, mu.Status.Drain)
	require.NotNil(t, mu.Status.Drain.FinishedAt)
	require.NotNil(t, mu.Status.Admission)
}

// TestRegistrationThatGoes: an updater that has begun is not forgotten.
func TestRegistrationThatGoes(t *testing.T) {
	w := newWorld(t)
	answer := `{"status": "Success", "retryAfterSeconds": 5}`
	w.registered(&answer, unchanged)
	w.node.plans, w.node.applied = []node.Plan{writeA}, []node.Status{succeeded}
	w.ask()
	w.reconcile()
	var u refitv1.UpdaterRegistration
	u.Name = "memory"
	require.NoError(t, w.Delete(t.Context(), &u))
	w.reconcile()
	require.Contains(t, w.update().Status.Message, "it is not registered for the Machine any more")
	require.NotContains(t, w.node.calls, "apply")
}
