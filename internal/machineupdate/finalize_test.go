package machineupdate

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/internal/workload"
)

// deleteUpdate asks for the deletion of the MachineUpdate alone.
func (w *world) deleteUpdate() { require.NoError(w.t, w.Delete(w.t.Context(), w.update())) }

// requireStays requires that the MachineUpdate says why it stays although it is being deleted.
func (w *world) requireStays(why string) {
	w.t.Helper()
	require.Contains(w.t, w.update().Status.Message, "the MachineUpdate is being deleted and stays for now: "+why)
}

// eventsWith returns the events with a reason since it was asked for last. All others are read away.
func (w *world) eventsWith(reason string) []string {
	var out []string
	for len(w.events.Events) > 0 {
		if e := <-w.events.Events; strings.Contains(e, reason) {
			out = append(out, e)
		}
	}
	return out
}

// requireRemoved requires that the MachineUpdate is gone, and nothing of refit's is on the Machine and its Node.
func (w *world) requireRemoved() {
	w.t.Helper()
	var mu refitv1.MachineUpdate
	require.True(w.t, apierrors.IsNotFound(w.Get(w.t.Context(), key, &mu)), "the MachineUpdate stays")
	require.NotContains(w.t, w.currentMachine().Annotations, clusterv1.MachineSkipRemediationAnnotation)
	require.NotContains(w.t, w.currentMachine().Annotations, clusterv1.PreDrainDeleteHookAnnotationPrefix+"/refit")
}

func TestAMachineUpdateIsDeletedAlone(t *testing.T) {
	for name, begin := range map[string]func(*testing.T) *world{
		"while it waits":                      func(t *testing.T) *world { return planned(t, drainA) },
		"while a policy holds it back":        func(t *testing.T) *world { w := under(t, drainA, nightly()); w.reconcile(); return w },
		"while its node is drained":           draining,
		"after its node may be half changed":  func(t *testing.T) *world { return failed(t, false) },
		"when the work on its node has ended": func(t *testing.T) *world { return cutOff(t, drainA) },
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t).atNow()
			require.Contains(t, w.update().Finalizers, refitv1.UpdateFinalizer)
			w.node.applied = []node.Status{{State: node.Succeeded}}
			w.deleteUpdate()
			w.reconcile()
			w.requireRemoved()
			w.requireFree(false)
		})
	}
}

func TestADeletedMachineUpdateWaitsForTheWorkOnItsNode(t *testing.T) {
	w := cutOff(t, drainA)
	w.deleteUpdate()
	w.node.applied = []node.Status{{State: node.Running}}
	require.Equal(t, retryDrain, w.reconcile().RequeueAfter)
	require.Contains(t, w.currentMachine().Annotations, clusterv1.PreDrainDeleteHookAnnotationPrefix+"/refit")
	require.False(t, w.ask(), "Cluster API, which asks again, is told")
	p, err := w.store.Update(t.Context(), key.Namespace, key.Name, w.digest())
	require.NoError(t, err)
	require.Contains(t, p.Message, "is being deleted")
	w.requireStays("work is under way on the node, which ends first")
	w.clock.Step(2 * lease.ControlPlaneDuration)
	w.reconcile()
	require.True(t, w.clusterNode().Spec.Unschedulable, "nobody has renewed the lease, and the node is at work all the same")
	require.Contains(t, w.currentMachine().Annotations, clusterv1.PreDrainDeleteHookAnnotationPrefix+"/refit")
	require.Len(t, w.eventsWith("MachineUpdateStays"), 1, "once")

	w.node.applied = []node.Status{{State: node.Succeeded}}
	w.reconcile()
	w.requireRemoved()
	w.requireFree(false)

	// Cluster API still asks, so the update is made from the start.
	w.node.plans = []node.Plan{settled}
	w.ask()
	w.reconcile()
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
}

// TestADeletedMachineUpdateWaitsForANodeThatDoesNotAnswer: what can't be asked may be at work.
func TestADeletedMachineUpdateWaitsForANodeThatDoesNotAnswer(t *testing.T) {
	w := cutOff(t, drainA)
	w.deleteUpdate()
	w.node.dialErr = errRefused
	for range 2 {
		require.Equal(t, retryDefault, w.reconcile().RequeueAfter)
		w.requireStays("the node does not answer")
		require.True(t, w.clusterNode().Spec.Unschedulable)
		require.Contains(t, w.currentMachine().Annotations, clusterv1.PreDrainDeleteHookAnnotationPrefix+"/refit")
	}
	require.Len(t, w.eventsWith("MachineUpdateStays"), 1, "once")

	w.node.dialErr, w.node.applied = nil, []node.Status{{State: node.Succeeded}}
	w.reconcile()
	w.requireRemoved()
	w.requireFree(false)
}

// theOne knows one workload cluster.
type theOne struct {
	Workloads
	name string
}

// Get implements Workloads.
func (o theOne) Get(ctx context.Context, key client.ObjectKey) (*workload.Cluster, error) {
	if key.Name != o.name {
		return nil, fmt.Errorf("there is no cluster %s", key)
	}
	return o.Workloads.Get(ctx, key)
}

// TestAnEditedLabelLeavesNothingBehind has somebody edit the label by which people find the MachineUpdates of a cluster.
func TestAnEditedLabelLeavesNothingBehind(t *testing.T) {
	w := failed(t, false).atNow()
	w.reconciler.Workloads = theOne{w.workload, w.currentMachine().Spec.ClusterName}
	mu := w.update()
	mu.Labels[clusterv1.ClusterNameLabel] = "other"
	require.NoError(t, w.Update(t.Context(), mu))
	w.node.applied = []node.Status{{State: node.Succeeded}}
	w.deleteUpdate()
	w.reconcile()
	w.requireRemoved()
	w.requireFree(false)
}

func TestADeletedMachineTakesItsMachineUpdateAlong(t *testing.T) {
	for name, first := range map[string]func(*world){
		"first the Machine":       func(w *world) { w.deleteMachine(); w.deleteUpdate() },
		"first the MachineUpdate": func(w *world) { w.deleteUpdate(); w.deleteMachine() },
	} {
		t.Run(name, func(t *testing.T) {
			w := draining(t).atNow()
			first(w)
			w.reconcile()
			w.requireRemoved()
			w.requireFree(true) // Cluster API drains it next
		})
	}
}

func TestAMachineUpdateWhoseMachineIsGone(t *testing.T) {
	orphan := func(t *testing.T) *world {
		w := draining(t).atNow()
		w.deleteUpdate()
		w.machine(func(m *clusterv1.Machine) { m.Annotations = nil })
		require.NoError(t, w.Delete(t.Context(), w.currentMachine()))
		return w
	}
	gone := func(w *world) bool {
		var mu refitv1.MachineUpdate
		return apierrors.IsNotFound(w.Get(w.t.Context(), key, &mu))
	}
	t.Run("frees the Node", func(t *testing.T) {
		w := orphan(t)
		w.reconcile()
		require.True(t, gone(w))
		require.False(t, w.clusterNode().Spec.Unschedulable)
		require.NotContains(t, w.clusterNode().Annotations, protection.UpdatingAnnotation)
		require.Empty(t, ptr.Deref(w.leaseOf().Spec.HolderIdentity, ""))
	})
	t.Run("does not stay for a workload cluster that is away for good", func(t *testing.T) {
		w := orphan(t)
		w.workload.Err = workload.ErrUnavailable
		require.Equal(t, retryDefault, w.reconcile().RequeueAfter)
		require.False(t, gone(w))
		w.requireStays("the Machine is gone, and what refit has put on the node can't be removed")
		require.Len(t, w.eventsWith("MachineUpdateStays"), 1)
		w.clock.Step(orphanTimeout + time.Minute)
		w.reconcile()
		require.True(t, gone(w))
	})
	t.Run("has its time with each leader", func(t *testing.T) {
		w := orphan(t)
		w.clock.Step(time.Hour) // nobody leads
		w.workload.Err = workload.ErrUnavailable
		w.reconcile()
		require.False(t, gone(w))
		w.workload.Err = nil
		w.reconcile()
		require.True(t, gone(w))
		require.False(t, w.clusterNode().Spec.Unschedulable)
	})
	t.Run("goes with the Cluster", func(t *testing.T) {
		w := orphan(t)
		w.workload.Err = workload.ErrUnavailable
		require.NoError(t, w.Delete(t.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "c1"}}))
		w.reconcile()
		require.True(t, gone(w))
	})
	t.Run("leaves the node of a cluster that was moved alone", func(t *testing.T) {
		w := orphan(t)
		w.pause(true)
		w.reconcile()
		require.True(t, gone(w))
		require.True(t, w.clusterNode().Spec.Unschedulable, "it is another refit's now")
	})
}

func TestAPausedMachineKeepsItsDeletedMachineUpdate(t *testing.T) {
	w := draining(t).atNow()
	w.pause(true)
	w.deleteUpdate()
	require.Equal(t, retryDefault, w.reconcile().RequeueAfter)
	require.True(t, w.clusterNode().Spec.Unschedulable)
	w.requireStays("the Cluster or the Machine is paused")
	w.pause(false)
	w.reconcile()
	w.requireRemoved()
	w.requireFree(false)
}

// TestAMachineThatIsMovedKeepsItsNode: what is on the node is that of refit in the management cluster which the Machine was moved to.
func TestAMachineThatIsMovedKeepsItsNode(t *testing.T) {
	w := draining(t).atNow()
	w.machine(func(m *clusterv1.Machine) { m.Annotations[clusterctlv1.DeleteForMoveAnnotation] = "" })
	w.deleteMachine()
	w.deleteUpdate()
	require.Equal(t, retryDefault, w.reconcile().RequeueAfter)
	require.True(t, w.clusterNode().Spec.Unschedulable)
	require.Contains(t, w.clusterNode().Annotations, protection.UpdatingAnnotation)
}

func TestAMachineUpdateThatHasEndedIsNotKept(t *testing.T) {
	w := planned(t, drainA)
	w.node.applied = []node.Status{succeeded}
	w.reconcile()
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
	require.Empty(t, w.update().Finalizers)
}

// pause pauses the world's Cluster, or ends that.
func (w *world) pause(paused bool) {
	var cluster clusterv1.Cluster
	require.NoError(w.t, w.Get(w.t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: "c1"}, &cluster))
	cluster.Spec.Paused = ptr.To(paused)
	require.NoError(w.t, w.Update(w.t.Context(), &cluster))
}
