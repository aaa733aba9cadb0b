package machineupdate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// A node that is lost in the middle of its update is not kept for ever from who would mend it, or make it again.
func TestALostNodeIsNotKeptFromItsRemediation(t *testing.T) {
	midRun := func(t *testing.T) *world { return cutOff(t, drainA) }
	for name, tc := range map[string]struct {
		begin func(*testing.T) *world
		lose  func(*world)
	}{
		"its Node is deleted": {midRun, func(w *world) {
			require.NoError(t, w.workload.Client.Delete(t.Context(), w.clusterNode()))
			w.node.dialErr = errRefused
		}},
		"it is silent": {midRun, func(w *world) { w.node.dialErr = errRefused }},
		"it is not Ready after the work": {func(t *testing.T) *world { return planned(t, drainA) }, func(w *world) {
			n := w.clusterNode()
			workloadtest.Ready(corev1.ConditionFalse)(n)
			require.NoError(t, w.workload.Client.Status().Update(t.Context(), n))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.begin(t)
			tc.lose(w)
			w.reconcile()
			w.clock.Step(40 * time.Minute)
			w.reconcile()
			w.requirePhase(refitv1.PhaseWaiting)
			require.Contains(t, w.currentMachine().Annotations, clusterv1.MachineSkipRemediationAnnotation)
			w.clock.Step(3 * time.Minute)
			w.reconcile()
			st := w.requirePhase(refitv1.PhaseFailed)
			require.Equal(t, "NodeNotBack", st.Reason)
			require.Contains(t, st.Message, "for 42m0s the work on it could not go on; refit no longer keeps those off who would mend the node or make it again: ")
			require.NotContains(t, w.currentMachine().Annotations, clusterv1.MachineSkipRemediationAnnotation)
			require.NotNil(t, st.Slot, "nobody else is disturbed meanwhile")

			w.annotate(refitv1.RetryAnnotation)
			w.reconcile()
			require.NotEqual(t, refitv1.PhaseFailed, w.update().Status.Phase, "another try has its own time")
		})
	}
}
