package machineupdate

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/registered"
	"github.com/capi-refit/refit/internal/registered/registeredtest"
)

// TestUpdaterThatBreaksAUnit has the update fail by its name before refit begins its own part, also if refit is restarted all the time.
func TestUpdaterThatBreaksAUnit(t *testing.T) {
	const chrony = "chrony.service"
	for name, restarts := range map[string]bool{"one server": false, "another one each time": true} {
		t.Run(name, func(t *testing.T) {
			w := newWalkWorld(walkContext(), t, memoryDir(t), restartPath, newFault(nothing, 0))
			w.node.lasts = []string{chrony}
			calls := 0
			u := registeredtest.Extension(t, "memory", func(string, []byte) any {
				if calls++; calls == 1 {
					return `{"status": "Success", "message": "the host adds memory", "retryAfterSeconds": 5}`
				}
				w.node.breakUnit(chrony, calls == 2)
				return saysDone
			})
			status := u.Status
			require.NoError(t, w.base.Create(w.ctx, u))
			u.Status = status
			require.NoError(t, w.base.Status().Update(w.ctx, u))
			until := func(phase refitv1.Phase) *refitv1.MachineUpdate {
				w.ask()
				for range maxRounds {
					if restarts {
						w.leader = w.start()
					}
					w.leader.Registered = &registered.Registry{Client: w.base, Live: w.base}
					if w.round(); w.update().Status.Phase == phase {
						break
					}
				}
				mu := w.update()
				require.Equal(t, phase, mu.Status.Phase, mu.Status.Message)
				return mu
			}
			mu := until(refitv1.PhaseFailed)
			require.Equal(t, "NodeFailed", mu.Status.Reason)
			require.Contains(t, mu.Status.Message, "after the part of UpdaterRegistration memory, which refit can't take back: what systemd ran worked before "+
				"and does not now: chrony.service has failed (see systemctl --failed on the node); refit has not begun its own part on the node")
			require.Contains(t, mu.Status.Message, "UpdaterRegistration memory has done its part on the machine, which stays")
			content, _ := os.ReadFile(filepath.Join(w.node.root, restartPath))
			require.NotEqual(t, secretContent+"\n", string(content))
			require.NotContains(t, w.node.units, "restart app.service")
			events := slices.Collect(func(yield func(string) bool) {
				for _, e := range w.node.journal() {
					if !yield(e.Event) {
						return
					}
				}
			})
			require.Less(t, slices.Index(events, "works-noted"), slices.Index(events, "run-started"), events)

			mu.Annotations = map[string]string{refitv1.RetryAnnotation: "1"}
			require.NoError(t, w.base.Update(w.ctx, mu))
			until(refitv1.PhaseSucceeded) // the extension mends it
			require.Equal(t, 3, calls)
			require.Contains(t, w.node.units, "restart app.service")
		})
	}
}

// TestWorksIsNotedBeforeAnUpdaterIsCalled, and it is not called before that.
func TestWorksIsNotedBeforeAnUpdaterIsCalled(t *testing.T) {
	w := newWorld(t)
	answer := saysDone
	calls := w.registered(&answer, unchanged)
	w.node.plans, w.node.applied = []node.Plan{writeA, writeA, {}}, []node.Status{succeeded}
	w.node.noteErr = errors.New("broken pipe")
	w.ask()
	for range 3 {
		_, _ = w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	}
	require.Empty(t, *calls)
	require.Nil(t, w.update().Status.ApplyingSince)
	w.node.noteErr, w.node.calls = nil, nil
	for range 5 {
		_, _ = w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	}
	w.requirePhase(refitv1.PhaseSucceeded)
	require.Len(t, *calls, 1)
	require.Equal(t, "memory", w.node.noted[len(w.node.noted)-1])
	require.Less(t, slices.Index(w.node.calls, "note"), slices.Index(w.node.calls, "updater"))
}
