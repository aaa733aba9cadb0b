package machineupdate

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

// remediated sets the condition by which a MachineHealthCheck has a Machine remediated.
func (w *world) remediated(status metav1.ConditionStatus, reason string) {
	w.machine(func(m *clusterv1.Machine) {
		m.Status.Conditions = []metav1.Condition{{
			Type: clusterv1.MachineOwnerRemediatedCondition, Status: status, Reason: reason, Message: "soon", LastTransitionTime: metav1.NewTime(w.clock.Now()),
		}}
	})
}

func annotateWith(name string) func(*world) {
	return func(w *world) {
		w.machine(func(m *clusterv1.Machine) { metav1.SetMetaDataAnnotation(&m.ObjectMeta, name, "") })
	}
}

// TestMachinesThatClusterAPITakes has Cluster API be about to take a Machine before its update has begun: the node is not connected to, and
// when nobody takes it any more, the update is made.
func TestMachinesThatClusterAPITakes(t *testing.T) {
	remove := func(name string) func(*world) {
		return func(w *world) { w.machine(func(m *clusterv1.Machine) { delete(m.Annotations, name) }) }
	}
	for name, tc := range map[string]struct {
		take    func(*world)
		message string
		give    func(*world)
	}{
		"deleted first": {
			annotateWith(clusterv1.DeleteMachineAnnotation), "kubectl annotate machine -n lab m1 cluster.x-k8s.io/delete-machine-",
			remove(clusterv1.DeleteMachineAnnotation),
		},
		"remediated by hand": {
			annotateWith(clusterv1.RemediateMachineAnnotation), "kubectl annotate machine -n lab m1 cluster.x-k8s.io/remediate-machine-",
			remove(clusterv1.RemediateMachineAnnotation),
		},
		"not healthy": {
			func(w *world) {
				w.remediated(metav1.ConditionFalse, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)
			}, "OwnerRemediated is False (WaitingForRemediation: soon)", func(w *world) { w.remediated(metav1.ConditionTrue, "Remediated") },
		},
		"being deleted by its owner": {
			func(w *world) { w.remediated(metav1.ConditionFalse, "MachineDeleting") }, "OwnerRemediated is False (MachineDeleting: soon)",
			func(w *world) { w.remediated(metav1.ConditionFalse, "CannotBeRemediated") },
		},
		"put off, since an upgrade comes first, which may wait for this update": {
			func(w *world) { w.remediated(metav1.ConditionFalse, "WaitingForRemediation") }, "WaitingForRemediation",
			func(w *world) { w.remediated(metav1.ConditionFalse, "RemediationDeferred") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ask()
			tc.take(w)
			require.Positive(t, w.reconcile().RequeueAfter)
			w.requireWaiting(refitv1.ReasonTaken, tc.message)
			require.Empty(t, w.node.calls)
			w.requireFree(false)

			tc.give(w)
			w.node.plans, w.node.applied = []node.Plan{writeA, settled}, []node.Status{succeeded}
			w.reconcile()
			w.requirePhase(refitv1.PhaseSucceeded)
		})
	}
}

// TestTakenOnTheWay has Cluster API be about to take a Machine whose node is being disturbed: what runs there ends first.
func TestTakenOnTheWay(t *testing.T) {
	w := draining(t)
	annotateWith(clusterv1.DeleteMachineAnnotation)(w)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonTaken, "about to take")
	w.requireFree(false)

	w = cutOff(t, drainA)
	annotateWith(clusterv1.DeleteMachineAnnotation)(w)
	w.node.applied = []node.Status{running}
	w.reconcile()
	w.requireKept(refitv1.ReasonTaken)
	require.Equal(t, []string{"status"}, w.node.calls, "it is only asked")
	w.node.applied = []node.Status{{State: node.Succeeded}}
	w.reconcile()
	require.NotContains(t, w.requireWaiting(refitv1.ReasonTaken, "about to take").Message, endsFirst)
	w.requireFree(true)
}
