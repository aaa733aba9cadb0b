package machineupdate

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drain"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// withPod has a pod run on the world's node that a PodDisruptionBudget keeps there.
func (w *world) withPod() {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web-0", UID: "uid-of-web-0"}}
	pod.Spec.NodeName, pod.Status.Phase = nodeName, corev1.PodRunning
	c := kubernetesfake.NewClientset(pod)
	c.PrependReactor("create", "pods/eviction", func(clienttesting.Action) (bool, runtime.Object, error) {
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 1 healthy pods and has 1 currently",
		})
		return true, nil, err
	})
	w.workload.Clientset = c
	require.NoError(w.t, w.workload.Client.Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}))
}

// podGoes ends the pod.
func (w *world) podGoes() {
	require.NoError(w.t, w.workload.Clientset.CoreV1().Pods("web").Delete(w.t.Context(), "web-0", metav1.DeleteOptions{}))
}

// draining returns a world whose node is being drained of a pod that may not go yet.
func draining(t *testing.T) *world {
	w := planned(t, drainA)
	w.node.plans = []node.Plan{drainA}
	w.withPod()
	require.Equal(t, retryDrain, w.reconcile().RequeueAfter)
	return w
}

func TestDrain(t *testing.T) {
	w := draining(t)
	st := w.requirePhase(refitv1.PhaseDraining)
	require.Equal(t, int32(1), st.Drain.PodsLeft)
	require.Equal(t, []string{"pod web/web-0: its PodDisruptionBudget web allows no disruption now"}, st.Drain.Blocked)
	require.True(t, st.Drain.Cordoned)
	require.NotNil(t, st.Slot)
	n := w.clusterNode()
	require.True(t, n.Spec.Unschedulable)
	require.Equal(t, "uid-1", n.Annotations[drain.CordonedAnnotation])
	require.Equal(t, "uid-1", n.Annotations[protection.UpdatingAnnotation])
	require.Contains(t, w.currentMachine().Annotations, clusterv1.MachineSkipRemediationAnnotation)
	require.Equal(t, "refit/uid-1", *w.leaseOf().Spec.HolderIdentity, "it stays held between two reconciliations")
	require.NotContains(t, w.node.calls, "apply")

	w.podGoes()
	w.node.plans = []node.Plan{drainA, settled}
	w.reconcile()
	st = w.requirePhase(refitv1.PhaseSucceeded)
	require.Nil(t, st.Drain)
	require.Nil(t, st.Slot)
	require.Nil(t, st.Node)
	w.requireFree(false)
}

// TestLoginsOfADrain: a drain looks at its node every few seconds, over one connection. What the node does is looked at by a login each.
func TestLoginsOfADrain(t *testing.T) {
	w := draining(t)
	w.podGoes()
	w.node.applied = []node.Status{{State: node.Running}}
	w.node.before = func(verb string) {
		if verb == "status" {
			w.clock.Step(longestFollow) // that ends the session
		}
	}
	w.reconcile()
	w.requirePhase(refitv1.PhaseApplying)
	w.node.before = nil
	w.node.plans, w.node.applied = []node.Plan{settled}, []node.Status{succeeded}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	logins := w.node.kept
	require.Empty(t, logins[len(logins)-1])
	before := slices.Compact(logins[:len(logins)-1])
	require.Len(t, before, 1, "%v", logins)
	require.NotEmpty(t, before[0])
}

func TestACordonOfSomebodyElseStays(t *testing.T) {
	w := planned(t, drainA)
	w.editNode(func(n *corev1.Node) { n.Spec.Unschedulable = true })
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	n := w.clusterNode()
	require.True(t, n.Spec.Unschedulable)
	require.NotContains(t, n.Annotations, drain.CordonedAnnotation)
}

// drainingForAMinute is a world whose node is being drained, for which it has a minute.
func drainingForAMinute(t *testing.T) *world {
	w := planned(t, drainA)
	w.withPod()
	w.machine(func(m *clusterv1.Machine) { m.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](60) })
	w.ask() // for these specs
	w.node.plans = []node.Plan{drainA}
	w.reconcile()
	w.requirePhase(refitv1.PhaseDraining)
	return w
}

func TestDrainTimesOut(t *testing.T) {
	w := drainingForAMinute(t)
	w.clock.Step(time.Minute)
	require.Zero(t, w.reconcile())
	st := w.requirePhase(refitv1.PhaseFailed)
	require.Equal(t, "DrainTimedOut", st.Reason)
	require.Contains(t, st.Message, "nothing was changed on it")
	require.NotNil(t, st.Slot, "it does not walk through the fleet")
	require.NotContains(t, w.node.calls, "apply")
	w.requireFree(false)

	w.podGoes()
	w.annotate(refitv1.RetryAnnotation)
	w.node.plans = []node.Plan{drainA, settled}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	w.requireFree(false)
}

// TestAServerThatWasOvertakenGivesNothingBack: the cordon is that of the server which goes on.
func TestAServerThatWasOvertakenGivesNothingBack(t *testing.T) {
	w := drainingForAMinute(t)
	stale := &update{Reconciler: w.reconciler, mu: w.update()}
	other := &update{Reconciler: w.reconciler, mu: w.update()}
	require.NoError(t, other.set(t.Context(), func(s *refitv1.MachineUpdateStatus) { s.Message = "another server goes on" }))
	require.True(t, apierrors.IsConflict(stale.releaseNode(t.Context(), false)))
	require.True(t, w.clusterNode().Spec.Unschedulable)
	require.NoError(t, other.releaseNode(t.Context(), false))
	w.requireFree(false)
}

// TestADrainThatAnotherLeaderTakesUp: while nobody leads nobody asks pods to leave, which must not count as time that they had.
func TestADrainThatAnotherLeaderTakesUp(t *testing.T) {
	w := drainingForAMinute(t)
	w.clock.Step(20 * time.Second)
	w.reconcile()
	w.requirePhase(refitv1.PhaseDraining)

	w.reconciler.Instance = "the next leader"
	w.clock.Step(time.Minute)
	w.reconcile()
	w.requirePhase(refitv1.PhaseDraining)
	require.Len(t, w.update().Status.Starts, 1)
	w.clock.Step(39 * time.Second)
	w.reconcile()
	w.requirePhase(refitv1.PhaseDraining)
	w.clock.Step(time.Second)
	w.reconcile()
	require.Equal(t, "DrainTimedOut", w.requirePhase(refitv1.PhaseFailed).Reason)
}

// TestADrainThatAnotherLeaderComesToLate has the next leader not reach the node at first.
func TestADrainThatAnotherLeaderComesToLate(t *testing.T) {
	w := drainingForAMinute(t)
	w.clock.Step(50 * time.Second)
	w.reconcile()
	w.requirePhase(refitv1.PhaseDraining)

	w.reconciler.Instance = "the next leader"
	w.clock.Step(5 * time.Minute)
	w.node.dialErr = errRefused
	w.reconcile()
	w.node.dialErr = nil
	w.clock.Step(15 * time.Second)
	w.reconcile()
	w.requirePhase(refitv1.PhaseDraining)
}

// annotate asks for something by an annotation on the MachineUpdate.
func (w *world) annotate(annotation string) {
	mu := w.update()
	mu.Annotations = map[string]string{annotation: w.clock.Now().String()}
	require.NoError(w.t, w.Update(w.t.Context(), mu))
}

// hold holds the world's node, or releases it.
func (w *world) hold(held bool) {
	w.editNode(func(n *corev1.Node) {
		delete(n.Annotations, refitv1.HoldAnnotation)
		if held {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, refitv1.HoldAnnotation, "a failing disk")
		}
	})
}

// requireTold requires that whoever holds the node is told there.
func (w *world) requireTold() {
	var list corev1.EventList
	require.NoError(w.t, w.workload.Client.List(w.t.Context(), &list))
	require.Len(w.t, list.Items, 1)
	e := list.Items[0]
	require.Equal(w.t, "InPlaceUpdateHeld", e.Reason)
	require.Equal(w.t, corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: w.clusterNode().UID}, e.InvolvedObject)
	require.Contains(w.t, e.Message, "a failing disk")
}

func TestAHoldDuringADrain(t *testing.T) {
	w := draining(t)
	w.hold(true)
	calls := len(w.node.calls)
	for range 2 {
		w.reconcile()
		st := w.requireWaiting(refitv1.ReasonHold, "node n1 held by")
		require.Nil(t, st.Slot)
		require.Nil(t, st.Drain)
		require.Nil(t, st.Node)
		require.Empty(t, st.Starts, "the node was not touched")
		w.requireFree(false)
	}
	require.Len(t, w.node.calls, calls, "nobody connects")
	w.requireTold()

	w.hold(false)
	w.podGoes()
	w.node.plans = []node.Plan{drainA, settled}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	w.requireFree(false)
}

func TestANodeThatIsNotReadyAfterTheWork(t *testing.T) {
	w := planned(t, drainA)
	ready := func(status corev1.ConditionStatus) {
		n := w.clusterNode()
		workloadtest.Ready(status)(n)
		require.NoError(t, w.workload.Client.Status().Update(t.Context(), n))
	}
	ready(corev1.ConditionFalse)
	w.reconcile()
	st := w.requireWaiting(refitv1.ReasonNode, "the work on the node is done, and Node n1 is not Ready")
	require.NotNil(t, st.Slot)
	require.True(t, w.clusterNode().Spec.Unschedulable)
	require.False(t, w.ask())

	ready(corev1.ConditionTrue)
	w.node.plans = []node.Plan{settled}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
	w.requireFree(false)
}

// TestARefitOnItsOwnNode has refit's own pod be on the node: another replica must lead before it goes.
func TestARefitOnItsOwnNode(t *testing.T) {
	w := planned(t, drainA)
	w.withPod()
	var why string
	w.reconciler.HandOver = func(message string) { why = message }
	w.reconciler.Self.Namespace, w.reconciler.Self.Name = "web", "web-0"
	require.Equal(t, retryDrain, w.reconcile().RequeueAfter)
	require.Contains(t, why, "another replica of refit must lead")
	w.requirePhase(refitv1.PhaseDraining)
}
