package holds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/protection"
)

func TestAHoldIsReleasedAtItsEnd(t *testing.T) {
	w := newWorld(t)
	w.hold(start.Add(time.Hour))
	w.requireHeld()
	require.Equal(t, ctrl.Result{RequeueAfter: time.Hour}, w.reconcile())
	w.clock.Step(time.Hour - time.Second)
	require.Equal(t, ctrl.Result{RequeueAfter: time.Second}, w.reconcile())
	w.requireHeld()
	w.clock.Step(time.Second)
	require.Zero(t, w.reconcile())
	w.requireFree()
	require.Zero(t, w.reconcile())
}

func TestAHoldWithoutEndStays(t *testing.T) {
	w := newWorld(t)
	w.hold(time.Time{})
	w.clock.Step(10_000 * time.Hour)
	require.Zero(t, w.reconcile())
	w.requireHeld()
}

// TestAnAnnotationThatSomebodyHasRemoved has a person release by hand, as without the command.
func TestAnAnnotationThatSomebodyHasRemoved(t *testing.T) {
	w := newWorld(t)
	w.hold(time.Time{})
	m := w.machine()
	delete(m.Annotations, refitv1.HoldAnnotation)
	require.NoError(t, w.management.Update(t.Context(), m))
	require.Zero(t, w.reconcile())
	w.requireFree()
}

// TestWhatIsNotOfAHoldStays has an annotation be set by hand, which puts nothing on, beside others'.
func TestWhatIsNotOfAHoldStays(t *testing.T) {
	byHand := map[string]string{refitv1.HoldAnnotation: "2026-10-03T20:00:00Z", clusterv1.MachineSkipRemediationAnnotation: ""}
	w := newWorld(t, func(m *clusterv1.Machine) { m.Annotations = byHand })
	w.clock.Step(time.Hour)
	require.Zero(t, w.reconcile())
	require.Equal(t, byHand, w.machine().Annotations)

	w = newWorld(t, func(m *clusterv1.Machine) {
		m.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: "", "a": "b"}
	})
	w.hold(start.Add(time.Hour))
	w.clock.Step(time.Hour)
	w.reconcile()
	require.Equal(t, map[string]string{clusterv1.MachineSkipRemediationAnnotation: "", "a": "b"}, w.machine().Annotations)
}

func TestAWorkloadClusterThatIsAway(t *testing.T) {
	w := newWorld(t)
	w.hold(start.Add(time.Hour))
	w.clock.Step(time.Hour)
	w.workload.Err = errAway
	require.Equal(t, ctrl.Result{RequeueAfter: lookAgain}, w.reconcile())
	w.requireHeld()

	m := w.machine()
	m.Finalizers = []string{clusterv1.MachineFinalizer}
	require.NoError(t, w.management.Update(t.Context(), m))
	require.NoError(t, w.management.Delete(t.Context(), m))
	require.Zero(t, w.reconcile())
	require.Empty(t, w.machine().Annotations, "a Machine that goes does not wait for its cluster")

	w = newWorld(t)
	w.hold(start.Add(time.Hour))
	w.clock.Step(time.Hour)
	require.NoError(t, w.workload.Client.Delete(t.Context(), w.node()))
	require.Zero(t, w.reconcile())
	require.Empty(t, w.machine().Annotations, "a Node that is gone has nothing left")
}

func TestAPausedMachineIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.hold(start.Add(time.Hour))
	w.clock.Step(time.Hour)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "prod"}}
	require.NoError(t, w.management.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
	cluster.Spec.Paused = ptr.To(true)
	require.NoError(t, w.management.Update(t.Context(), cluster))
	require.Equal(t, ctrl.Result{RequeueAfter: lookAgain}, w.reconcile())
	w.requireHeld()
}

// TestHeldAgainWhileItIsReleased has alice hold the node again at the last moment.
func TestHeldAgainWhileItIsReleased(t *testing.T) {
	w := newWorld(t)
	w.hold(start.Add(time.Hour))
	w.clock.Step(time.Hour)
	w.onPatch = func() { w.hold(start.Add(3 * time.Hour)) }
	require.Positive(t, w.reconcile().RequeueAfter)
	w.requireHeld()
	require.Equal(t, ctrl.Result{RequeueAfter: 2 * time.Hour}, w.reconcile())

	w = newWorld(t)
	w.hold(start.Add(time.Hour))
	m := w.machine()
	w.clock.Step(time.Hour)
	w.hold(start.Add(3 * time.Hour))
	s := &Sweeper{Client: w.management, Live: w.management, Workloads: w, Clock: w.clock}
	result, err := s.sweep(t.Context(), m) // as it was read before
	require.NoError(t, err)
	require.Equal(t, lookAgain, result.RequeueAfter)
	w.requireHeld()
}

// TestAHoldThatWasShortenedEndsThen has the lease not be written any more, which still says that it is held for longer.
func TestAHoldThatWasShortenedEndsThen(t *testing.T) {
	for name, before := range map[string]time.Time{"it had no end": {}, "it had a later one": start.Add(8 * time.Hour)} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.hold(before)
			m := w.machine()
			m.Annotations[refitv1.HoldAnnotation] = start.Add(time.Hour).Format(time.RFC3339)
			require.NoError(t, w.management.Update(t.Context(), m))
			w.clock.Step(time.Hour)
			require.Zero(t, w.reconcile())
			w.requireFree()
		})
	}
}

func TestAMachineThatIsGone(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.management.Delete(t.Context(), w.machine()))
	require.Zero(t, w.reconcile())
	w = newWorld(t, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" })
	m := w.machine()
	require.NoError(t, protection.HoldMachine(m))
	require.NoError(t, w.management.Update(t.Context(), m))
	require.Zero(t, w.reconcile())
	require.Empty(t, w.machine().Annotations, "a Machine that had no node yet")
}
