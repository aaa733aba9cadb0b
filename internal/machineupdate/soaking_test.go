package machineupdate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
)

// soaking returns a world whose node was seen being watched, and falls silent.
func soaking(t *testing.T) *world {
	w := cutOff(t, drainA)
	w.node.applied = []node.Status{{State: node.Running, Step: node.StepSoak, Done: 4, Total: 5}}
	asked := 0
	w.node.before = func(verb string) {
		if verb == "status" {
			asked++
		}
		if asked == 2 { // the first asks for the run before
			w.node.dialErr, w.node.err = errRefused, &node.AgentError{Reason: node.ReasonInternal, Message: "gone"}
		}
	}
	w.reconcile()
	w.node.before, w.node.err = nil, nil
	w.reconcile()
	w.requireWaiting(refitv1.ReasonUnreachable, "connection refused")
	require.NotNil(t, w.update().Status.SoakingSince)
	w.node.dialErr = nil
	return w
}

// TestASoakIsRemembered until the watched node has shown that it works, whatever the update waits for and whoever leads.
func TestASoakIsRemembered(t *testing.T) {
	w := soaking(t)
	since := w.update().Status.SoakingSince
	w.clock.Step(time.Minute)
	w.reconciler.Instance = "refit-1"
	w.node.applied = []node.Status{{State: node.Running, Step: "probe", Rebooting: true}}
	w.node.before = func(verb string) {
		if verb == "apply" {
			w.node.applyErr = remote.ErrConnectionLost
		}
	}
	w.reconcile()
	require.True(t, since.Equal(w.update().Status.SoakingSince), "of another leader, and before it is watched again")
	record := w.update().Spec.Record
	require.True(t, since.Equal(record.Status.SoakingSince), "what is moved without its status takes it along")

	w.node.before, w.node.applyErr = nil, nil
	w.node.applied = []node.Status{succeeded}
	w.node.plans = []node.Plan{settled}
	w.reconcile()
	require.Nil(t, w.requirePhase(refitv1.PhaseSucceeded).SoakingSince)
}

// TestASoakEnds without a success, too.
func TestASoakEnds(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"the node fails": func(w *world) {
			w.node.applied = []node.Status{{State: node.Failed, Message: "the unit does not stay up", Token: 99}}
		},
		"it takes a reboot": func(w *world) {
			w.node.applied = []node.Status{{State: node.Failed, Message: "read at boot only", NeedsReboot: true, Token: 99}}
		},
		"other specs are asked for, and it is lost": func(w *world) {
			w.change()
			w.ask()
			w.node.dialErr = errRefused
			w.reconcile()
			w.clock.Step(time.Hour)
		},
		"the node is released": func(w *world) {
			w.hold(true)
			w.node.applied = []node.Status{{State: node.Succeeded}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := soaking(t)
			end(w)
			w.reconcile()
			st := w.update().Status
			require.Nil(t, st.SoakingSince, "%s: %s", st.Phase, st.Message)
			require.NotNil(t, st.Slot)
		})
	}
}

// TestASoakOutlastsOtherSpecs: others that have the same change committed don't go on while the node is silent.
func TestASoakOutlastsOtherSpecs(t *testing.T) {
	w := soaking(t)
	since := w.update().Status.SoakingSince
	w.node.dialErr = errRefused
	w.change()
	w.ask()
	w.reconcile()
	w.requireWaiting(refitv1.ReasonUnreachable, "connection refused")
	require.True(t, since.Equal(w.update().Status.SoakingSince))
	w.reconcile()
	require.True(t, since.Equal(w.update().Status.SoakingSince))
}
