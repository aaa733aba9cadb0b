package machineupdate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/nodetest"
)

// TestNoneWaitsForWindowAndSlot: by a policy with None the pods stay where they are, and the rest is as for anything else that disturbs.
func TestNoneWaitsForWindowAndSlot(t *testing.T) {
	none := []disruption.Action{{Type: disruption.None}}
	for _, ref := range append(nodetest.Refs(), node.FileRef("/etc/kubernetes/manifests/app.yaml")) {
		plan := node.Plan{Changes: []node.Change{{Ref: ref, Operation: node.Write, Actions: none}}, Actions: none}
		t.Run(ref.String(), func(t *testing.T) {
			w := under(t, plan, nightly())
			w.reconcile()
			if mu := w.update(); !ref.Interrupts() {
				require.Equal(t, "True NotMaterial", permittedReason(mu))
				return
			}
			require.Equal(t, "False OutsideWindow", permittedReason(w.update()))
			require.Equal(t, []string{"plan"}, w.node.calls)

			w.clock.SetTime(w.clock.Now().Add(2*time.Hour + time.Minute))
			w.node.plans, w.node.applied = []node.Plan{plan}, []node.Status{{State: node.Failed, Message: "no"}}
			w.reconcile()
			mu := w.update()
			require.Equal(t, refitv1.PhaseFailed, mu.Status.Phase, mu.Status.Message)
			require.Equal(t, "True Open", permittedReason(mu))
			require.NotNil(t, mu.Status.Slot, "what has failed keeps its slot")
			require.Len(t, mu.Status.Starts, 1)
			require.Nil(t, mu.Status.Drain, "the pods stay")
		})
	}
}
