package machineupdate

import (
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// TestWhatComesWhileTheNodePlansIsSeenBeforeTheWork: after the look that comes with the lease neither Machine nor Node is read before the marks, and a mark
// of what has changed since is refused. The changes come after that look.
func TestWhatComesWhileTheNodePlansIsSeenBeforeTheWork(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		change func(w *world)
	}{
		"a hold of the Node":    {refitv1.ReasonHold, func(w *world) { w.hold(true) }},
		"a hold of the Machine": {refitv1.ReasonHold, func(w *world) { w.annotateMachine(refitv1.HoldAnnotation) }},
		"a Machine that is to be remediated": {refitv1.ReasonTaken, func(w *world) {
			w.annotateMachine(clusterv1.RemediateMachineAnnotation)
		}},
		"a pause of the Cluster": {refitv1.ReasonHold, func(w *world) {
			var cluster clusterv1.Cluster
			require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: w.currentMachine().Spec.ClusterName}, &cluster))
			cluster.Spec.Paused = ptr.To(true)
			require.NoError(w.t, w.Update(w.t.Context(), &cluster))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ask()
			w.node.plans = []node.Plan{restartA}
			w.node.before = func(verb string) {
				if verb == "plan" {
					require.NotEmpty(t, *w.leaseOf().Spec.HolderIdentity)
					c.change(w)
					w.node.before = nil
				}
			}
			w.reconcile()
			require.Equal(t, []string{"plan"}, w.node.calls, "nothing is begun")
			w.requireWaiting(c.reason, "")
			require.Nil(t, w.update().Status.Slot)
			require.Empty(t, *w.leaseOf().Spec.HolderIdentity)
		})
	}
}

// TestAChangeWhileTheNodePlansThatIsNobodysHold has all be asked once more, and the update go on.
func TestAChangeWhileTheNodePlansThatIsNobodysHold(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"of the Machine": func(w *world) { w.annotateMachine("example.com/seen") },
		"of the Node": func(w *world) {
			n := w.clusterNode()
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, "example.com/seen", "true")
			require.NoError(w.t, w.workload.Client.Update(w.t.Context(), n))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ask()
			w.node.plans = []node.Plan{restartA, settled}
			w.node.before = func(verb string) {
				if verb == "plan" {
					w.node.before = nil
					change(w)
				}
			}
			w.reconcile()
			w.requirePhase(refitv1.PhaseSucceeded)
			w.requireFree(false)
		})
	}
}

// TestALeaseThatAnotherMakesAfterTheSweep: the sweep has found no lease of the node, so that it is made without being looked for.
func TestALeaseThatAnotherMakesAfterTheSweep(t *testing.T) {
	w := newWorld(t)
	w.ask()
	made := false
	w.workload.Client = workloadtest.Before(w.workload.Client, func(verb string, obj runtime.Object) error {
		if l, ok := obj.(*coordinationv1.Lease); ok && verb == "create" && l.Name == leaseKey.Name && !made {
			made = true
			w.holdLease("node-maintenance")
		}
		return nil
	})
	w.reconcile()
	require.True(t, made)
	w.requireWaiting(refitv1.ReasonLease, "node-maintenance")
	require.Empty(t, w.node.calls)
	require.Equal(t, "node-maintenance", *w.leaseOf().Spec.HolderIdentity)
}

// annotateMachine does to the Machine what others do.
func (w *world) annotateMachine(annotation string) {
	m := w.currentMachine()
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotation, "true")
	require.NoError(w.t, w.Update(w.t.Context(), m))
}
