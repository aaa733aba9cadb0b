package machineupdate

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/drain"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/internal/workload"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// Plans that have the node drained.
var (
	drainA  = node.Plan{Changes: writeA.Changes, Actions: []disruption.Action{{Type: disruption.Drain}, {Type: disruption.Restart, Unit: "app.service"}}}
	rebootA = node.Plan{Changes: writeA.Changes, Actions: []disruption.Action{{Type: disruption.Reboot}}}
	settled = node.Plan{} // nothing is left to do
)

// leaseOf returns the lease of the world's node.
func (w *world) leaseOf() *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseKey.Namespace, Name: leaseKey.Name}}
	require.NoError(w.t, client.IgnoreNotFound(w.workload.Client.Get(w.t.Context(), leaseKey, l)))
	return l
}

// holdLease has somebody hold the lease of the world's node.
func (w *world) holdLease(holder string) {
	l, at := w.leaseOf(), metav1.NewMicroTime(w.clock.Now())
	l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &holder, &at, ptr.To[int32](600)
	if l.ResourceVersion == "" {
		require.NoError(w.t, w.workload.Client.Create(w.t.Context(), l))
		return
	}
	require.NoError(w.t, w.workload.Client.Update(w.t.Context(), l))
}

// clusterNode returns the world's Node.
func (w *world) clusterNode() *corev1.Node {
	var n corev1.Node
	require.NoError(w.t, w.workload.Client.Get(w.t.Context(), types.NamespacedName{Name: nodeName}, &n))
	return &n
}

// editNode does to the world's Node what others do.
func (w *world) editNode(change func(*corev1.Node)) {
	n := w.clusterNode()
	change(n)
	require.NoError(w.t, w.workload.Client.Update(w.t.Context(), n))
}

func (w *world) currentMachine() *clusterv1.Machine {
	var m clusterv1.Machine
	require.NoError(w.t, w.Get(w.t.Context(), key, &m))
	return &m
}

// requireFree requires that nobody sees anything of refit at the node but a cordon, if one is to stay.
func (w *world) requireFree(cordoned bool) {
	w.t.Helper()
	n := w.clusterNode()
	require.Equal(w.t, cordoned, n.Spec.Unschedulable, "cordoned")
	_, ours := n.Annotations[drain.CordonedAnnotation]
	require.Equal(w.t, cordoned, ours, "cordoned by refit")
	require.NotContains(w.t, n.Annotations, protection.UpdatingAnnotation)
	require.NotContains(w.t, n.Annotations, protection.AddedAnnotation)
	require.Empty(w.t, n.Labels)
	require.NotContains(w.t, w.currentMachine().Annotations, protection.AddedAnnotation)
	require.NotContains(w.t, w.currentMachine().Annotations, clusterv1.MachineSkipRemediationAnnotation)
	require.NotContains(w.t, ptr.Deref(w.leaseOf().Spec.HolderIdentity, ""), "refit/")
}

// requireWaiting requires that the update waits, and returns it.
func (w *world) requireWaiting(reason, message string) refitv1.MachineUpdateStatus {
	w.t.Helper()
	st := w.update().Status
	require.Equal(w.t, refitv1.PhaseWaiting, st.Phase, st.Message)
	require.Equal(w.t, reason, st.Reason, st.Message)
	require.Contains(w.t, st.Message, message)
	return st
}

func (w *world) requirePhase(phase refitv1.Phase) refitv1.MachineUpdateStatus {
	w.t.Helper()
	st := w.update().Status
	require.Equal(w.t, phase, st.Phase, "%s: %s", st.Reason, st.Message)
	return st
}

// planned returns a world that knows already what its update takes, as it was held back by a policy until now.
func planned(t *testing.T, plan node.Plan) *world {
	w := under(t, plan, nightly())
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWindow, "")
	w.node.plans, w.node.calls = []node.Plan{plan, settled}, nil
	w.clock.SetTime(w.clock.Now().Add(2*time.Hour + time.Minute))
	return w
}

func TestNodesOfOthersAreNotReachedFor(t *testing.T) {
	const release = "kubectl annotate"
	for name, tc := range map[string]struct {
		arrange func(*world)
		reason  string
		message string
	}{
		"a lease": {func(w *world) { w.holdLease("NodeHealthCheck-workers") }, refitv1.ReasonLease, "node lease held by NodeHealthCheck-workers since"},
		"an administrator's lease": {func(w *world) {
			w.holdLease("admin/ann")
			w.clock.Step(time.Minute)
		}, refitv1.ReasonLease, "admin/ann"},
		"a hold on the Machine": {func(w *world) {
			w.machine(func(m *clusterv1.Machine) { m.Annotations = map[string]string{refitv1.HoldAnnotation: "true"} })
		}, refitv1.ReasonHold, release + " machine -n lab m1"},
		"a hold on the Node": {func(w *world) {
			w.editNode(func(n *corev1.Node) { n.Annotations = map[string]string{refitv1.HoldAnnotation: "a failing disk"} })
		}, refitv1.ReasonHold, "a failing disk"},
		"a clock that is ahead": {func(w *world) {
			w.workload = newWorkload(clocktesting.NewFakePassiveClock(w.clock.Now().Add(-time.Minute)))
			w.reconciler.Workloads = w.workload
		}, refitv1.ReasonLease, "the clock here is up to 1m0s ahead"},
		"an API server that is away": {func(w *world) { w.workload.Err = workload.ErrUnavailable }, refitv1.ReasonWorkload, "so the node is not touched"},
		"no Node": {func(w *world) {
			w.machine(func(m *clusterv1.Machine) { m.Status.NodeRef = clusterv1.MachineNodeReference{} })
		}, refitv1.ReasonNode, "the Machine has no node yet"},
		"a Node that is gone": {func(w *world) { require.NoError(w.t, w.workload.Client.Delete(w.t.Context(), w.clusterNode())) },
			refitv1.ReasonNode, "the Node is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			w := planned(t, restartA)
			tc.arrange(w)
			require.Positive(t, w.reconcile().RequeueAfter)
			st := w.requireWaiting(tc.reason, tc.message)
			require.Nil(t, st.Slot, "it is for those who can go on")
			require.Nil(t, st.Node)
			require.Nil(t, st.Admission)
			require.Empty(t, w.node.calls, "nobody connects")
			require.NotContains(t, ptr.Deref(w.leaseOf().Spec.HolderIdentity, ""), "refit/")
		})
	}
}

func TestALeaseThatIsGivenBackIsTaken(t *testing.T) {
	w := planned(t, restartA)
	w.holdLease("NodeHealthCheck-workers")
	w.reconcile()
	w.requireWaiting(refitv1.ReasonLease, "NodeHealthCheck-workers")
	w.holdLease("")
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	require.Equal(t, int32(2), *w.leaseOf().Spec.LeaseTransitions+1, "it is one more holder's")
	w.requireFree(false)
}

// TestLeaseLostWhileTheNodeWorks has another take the lease while the node works. The renewal notices that, and nothing else is
// done until the lease is acquired again; then the work is adopted with the new token.
func TestLeaseLostWhileTheNodeWorks(t *testing.T) {
	w := planned(t, restartA)
	running := node.Status{State: node.Running, Step: "restart app.service", Done: 2, Total: 5}
	w.node.applied = []node.Status{running}
	w.node.before = func(verb string) {
		if verb != "apply" {
			return
		}
		w.holdLease("somebody")
		require.Eventually(t, w.clock.HasWaiters, time.Minute, time.Millisecond) // what renews the lease
		w.clock.Step(lease.RenewEvery)
	}
	w.reconcile()
	st := w.requireWaiting(refitv1.ReasonLease, `the node lease is lost: it is held by "somebody"`)
	require.NotNil(t, st.ApplyingSince)
	require.NotNil(t, st.Slot)

	w.node.before = nil
	calls := len(w.node.calls)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonLease, "node lease held by somebody")
	require.Len(t, w.node.calls, calls, "nobody connects")

	w.holdLease("")
	w.node.plans, w.node.applied = []node.Plan{restartA, settled}, []node.Status{running, running, succeeded}
	w.reconcile()
	st = w.requirePhase(refitv1.PhaseSucceeded)
	require.Len(t, w.node.tokens, 2)
	require.Greater(t, w.node.tokens[1], w.node.tokens[0])
	require.Equal(t, w.node.tokens[1], st.Token)
	w.requireFree(false)
}

func TestSlotsAreFull(t *testing.T) {
	w := planned(t, restartA)
	meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: "m2", Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}
	other := &clusterv1.Machine{ObjectMeta: meta}
	other.UID, other.Spec.ClusterName, other.Status.NodeRef.Name = "uid-2", "c1", "n2"
	require.NoError(t, w.Create(t.Context(), other))
	w.machine(func(m *clusterv1.Machine) { m.Labels = meta.Labels })
	mu := &refitv1.MachineUpdate{ObjectMeta: meta, Spec: refitv1.MachineUpdateSpec{Digest: "d"}}
	mu.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(other, clusterv1.GroupVersion.WithKind("Machine"))}
	require.NoError(t, w.Create(t.Context(), mu))
	mu.Status.Slot, mu.Status.Phase = &refitv1.Slot{TakenAt: metav1.Now()}, refitv1.PhaseApplying
	require.NoError(t, w.Status().Update(t.Context(), mu))

	require.False(t, w.ask()) // the label has not changed the specs
	w.reconcile()
	st := w.requireWaiting(refitv1.ReasonSlot, "m2 (updating)")
	require.Nil(t, st.Slot)
	require.Empty(t, w.node.calls)
	require.Empty(t, ptr.Deref(w.leaseOf().Spec.HolderIdentity, ""))

	require.NoError(t, w.Delete(t.Context(), mu))
	require.NoError(t, w.Delete(t.Context(), other))
	w.clock.Step(10 * time.Second)
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
}

// cutOff returns a world whose node has begun to apply when the connection was lost.
func cutOff(t *testing.T, plan node.Plan) *world {
	w := planned(t, plan)
	w.node.applyErr = remote.ErrConnectionLost
	w.reconcile()
	require.NotNil(t, w.update().Status.ApplyingSince)
	w.node.applyErr, w.node.digest = nil, w.update().Spec.Digest
	w.node.plans, w.node.calls = []node.Plan{plan, settled}, nil
	return w
}

// TestNoWorkBeginsWithoutTheLease has another take the lease when it was looked at for the last time: a server that was suspended then must
// not begin.
func TestNoWorkBeginsWithoutTheLease(t *testing.T) {
	w := planned(t, restartA)
	protected := false
	w.workload.Client = workloadtest.Before(w.workload.Client, func(verb string, obj runtime.Object) error {
		if o, ok := obj.(client.Object); ok && verb == "patch" && o.GetName() == nodeName && !protected { // it is protected, which is what comes before the work
			protected = true
			w.holdLease("node-maintenance")
		}
		return nil
	})
	w.reconcile()
	w.requireWaiting(refitv1.ReasonLease, "node-maintenance")
	require.NotContains(t, w.node.calls, "apply")
}

// TestTheAPIIsAwayWhileTheNodeWorks has the workload cluster's API server be away from the moment on in which the node works. The work
// is taken to its end, with the token that it has; whether the node is well can be told only when the API is back.
func TestTheAPIIsAwayWhileTheNodeWorks(t *testing.T) {
	w := cutOff(t, drainA)
	token := w.update().Status.Token
	w.workload.Err = workload.ErrUnavailable
	w.node.applied = []node.Status{{State: node.Running, Interrupted: true}, succeeded}
	w.node.plans = []node.Plan{settled}
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWorkload, "nothing else starts until it is back")
	require.Equal(t, []string{"status", "apply", "plan"}, w.node.calls)
	require.Equal(t, []int64{token}, w.node.tokens)
	require.True(t, w.clusterNode().Spec.Unschedulable)

	w.workload.Err = nil
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	w.requireFree(false)
}

func TestNothingBeginsWhileTheAPIIsAway(t *testing.T) {
	for name, onNode := range map[string]node.Status{
		"the node was not reached":      {State: node.Idle},
		"it works on other specs":       {State: node.Running, Digest: "another"},
		"it has failed, which is known": {State: node.Failed, Token: 7},
	} {
		t.Run(name, func(t *testing.T) {
			w := cutOff(t, drainA)
			mu := w.update()
			mu.Status.FailedToken = 7
			require.NoError(t, w.Status().Update(t.Context(), mu))
			w.workload.Err = workload.ErrUnavailable
			w.node.applied = []node.Status{onNode}
			w.reconcile()
			w.requireWaiting(refitv1.ReasonWorkload, "the workload cluster's API server is away")
			require.Equal(t, []string{"status"}, w.node.calls)
		})
	}
}

// TestHoldsThatCantBeReadLetNothingStart lets the lease be acquired, and nothing be read after that.
func TestHoldsThatCantBeReadLetNothingStart(t *testing.T) {
	w := cutOff(t, drainA)
	w.node.applied = []node.Status{{State: node.Idle, Digest: "none"}}
	away := false
	w.node.before = func(string) { away = true }
	w.workload.Client = workloadtest.Before(w.workload.Client, func(verb string, obj runtime.Object) error {
		if _, ok := obj.(*corev1.Node); ok && verb == "get" && away {
			return errors.New("connection refused")
		}
		return nil
	})
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWorkload, "connection refused")
	require.NotContains(t, w.node.calls, "apply")
}
