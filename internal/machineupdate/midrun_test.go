package machineupdate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

const endsFirst = "that ends first, and until then refit keeps the node"

var running = node.Status{State: node.Running, Step: "restart app.service", Done: 2, Total: 5}

// requireKept requires that an update which waits keeps others off its node.
func (w *world) requireKept(reason string) {
	w.t.Helper()
	w.requireWaiting(reason, endsFirst)
	n := w.clusterNode()
	require.True(w.t, n.Spec.Unschedulable)
	require.Equal(w.t, "uid-1", n.Annotations[protection.UpdatingAnnotation])
	require.Contains(w.t, w.currentMachine().Annotations, clusterv1.MachineSkipRemediationAnnotation)
	require.Contains(w.t, w.currentMachine().Annotations, clusterv1.PreDrainDeleteHookAnnotationPrefix+"/refit")
	require.Equal(w.t, "refit/uid-1", *w.leaseOf().Spec.HolderIdentity)
}

// TestAHoldWhileTheNodeWorks has the node be held when work is under way on it: that ends, and then the node is left. It may be half
// changed: it stays cordoned, and its update keeps its slot.
func TestAHoldWhileTheNodeWorks(t *testing.T) {
	for name, tc := range map[string]struct {
		end    func(*world)
		reason string
		// silent reports that nobody knows whether the work has ended: refit keeps the node until its lease lapses.
		silent bool
	}{
		"it ends":            {func(w *world) { w.node.applied = []node.Status{{State: node.Succeeded}} }, refitv1.ReasonHold, false},
		"nobody works on it": {func(w *world) { w.node.applied = []node.Status{{State: node.Running, Interrupted: true}} }, refitv1.ReasonHold, false},
		"the node is away":   {func(w *world) { w.node.dialErr = errRefused }, refitv1.ReasonHold, true},
		"the lease has lapsed, and the node is away": {func(w *world) {
			w.clock.Step(lease.WorkerDuration)
			w.node.dialErr = errRefused
		}, refitv1.ReasonHold, false},
		"the lease is another's": {func(w *world) { w.holdLease("somebody") }, refitv1.ReasonLease, false},
		"the agent doesn't answer": {func(w *world) {
			w.node.err = &node.AgentError{Reason: node.ReasonInternal, Message: "no space left on device"}
		}, refitv1.ReasonHold, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := cutOff(t, drainA)
			w.hold(true)
			w.node.applied = []node.Status{running}
			for range 3 {
				require.Equal(t, retryDrain, w.reconcile().RequeueAfter)
				w.requireKept(refitv1.ReasonHold)
				w.clock.Step(time.Minute)
			}
			require.Equal(t, []string{"status", "status", "status"}, w.node.calls, "it is only asked")
			w.requireTold()

			tc.end(w)
			w.reconcile()
			if tc.silent {
				w.requireWaiting(refitv1.ReasonHold, "nobody knows whether work goes on there")
				require.Equal(t, "refit/uid-1", *w.leaseOf().Spec.HolderIdentity)
				w.clock.Step(lease.WorkerDuration)
				w.reconcile()
			}
			st := w.requireWaiting(tc.reason, "held by")
			require.NotContains(t, st.Message, endsFirst)
			require.NotNil(t, st.Slot)
			require.NotNil(t, st.ApplyingSince)
			require.Len(t, st.Starts, 1)
			w.requireFree(true)
			w.node.calls, w.node.dialErr, w.node.err = nil, nil, nil
			w.reconcile()
			require.Empty(t, w.node.calls, "nobody connects to a node that was left")

			w.hold(false)
			w.holdLease("")
			w.node.applied = []node.Status{running, succeeded}
			w.reconcile()
			st = w.requirePhase(refitv1.PhaseSucceeded)
			require.Nil(t, st.Slot)
			w.requireFree(false)
		})
	}
}

// TestAHoldThatIsMetOnTheNode appears when refit has the lease already.
func TestAHoldThatIsMetOnTheNode(t *testing.T) {
	w := cutOff(t, drainA)
	w.node.applied = []node.Status{running}
	w.node.before = func(string) { w.hold(true) }
	w.reconcile()
	w.requireKept(refitv1.ReasonHold)
	require.NotContains(t, w.node.calls, "apply")
	w.node.applied = []node.Status{{State: node.Succeeded}}
	w.reconcile()
	w.requireWaiting(refitv1.ReasonHold, "held by")
	w.requireFree(true)
}

// TestAHoldBetweenTwoLooks appears when refit has looked for holds and not yet taken the lease again.
func TestAHoldBetweenTwoLooks(t *testing.T) {
	w := cutOff(t, drainA)
	w.node.applied = []node.Status{running}
	looked := false
	w.workload.Client = workloadtest.Before(w.workload.Client, func(verb string, obj runtime.Object) error {
		if _, ok := obj.(*coordinationv1.Lease); ok && verb == "update" && !looked {
			looked = true
			w.hold(true)
		}
		return nil
	})
	w.reconcile()
	w.requireKept(refitv1.ReasonHold)
	require.Equal(t, []string{"status"}, w.node.calls, "it is only asked")
	w.node.applied = []node.Status{{State: node.Succeeded}}
	w.reconcile()
	w.requireWaiting(refitv1.ReasonHold, "held by")
	w.requireFree(true)
}

// TestAHoldDuringAQuietChange: what does not disturb a node takes its lease all the same, and releases it for whoever holds the node.
func TestAHoldDuringAQuietChange(t *testing.T) {
	w := under(t, writeA, nightly())
	w.node.applyErr = remote.ErrConnectionLost
	w.reconcile()
	st := w.update().Status
	require.NotNil(t, st.ApplyingSince)
	require.Nil(t, st.Node)
	require.Equal(t, "refit/uid-1", *w.leaseOf().Spec.HolderIdentity)

	w.node.applyErr, w.node.digest, w.node.applied = nil, w.update().Spec.Digest, []node.Status{{State: node.Succeeded}}
	w.hold(true)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonHold, "held by")
	w.requireFree(false)
}

// TestAHoldWhileTheNodeReboots has the node be held when it does not answer because it reboots, which is a step of the work.
func TestAHoldWhileTheNodeReboots(t *testing.T) {
	w := cutOff(t, rebootA)
	require.NotNil(t, w.update().Status.RebootingSince)
	w.hold(true)
	w.node.dialErr = errRefused
	w.reconcile()
	w.requireKept(refitv1.ReasonHold)
	w.node.dialErr, w.node.applied = nil, []node.Status{running}
	w.reconcile()
	w.requireKept(refitv1.ReasonHold)
	w.node.applied = []node.Status{{State: node.Running, Interrupted: true}}
	w.reconcile()
	w.requireWaiting(refitv1.ReasonHold, "held by")
	w.requireFree(true)

	w.hold(false)
	w.node.applied = []node.Status{{State: node.Running, Interrupted: true}, succeeded}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	w.requireFree(false)
}

// TestAHoldBeforeAnybodySawTheReboot has the node go down for its reboot while refit starts again, so that nobody knows since when it reboots.
func TestAHoldBeforeAnybodySawTheReboot(t *testing.T) {
	w := cutOff(t, rebootA)
	mu := w.update()
	mu.Status.RebootingSince = nil
	require.NoError(t, w.Status().Update(t.Context(), mu))
	w.hold(true)
	w.node.dialErr = errRefused
	w.reconcile()
	w.requireKept(refitv1.ReasonHold)
	w.clock.Step(lease.WorkerDuration)
	w.reconcile()
	w.requireWaiting(refitv1.ReasonHold, "held by")
	w.requireFree(true)
}

// TestOtherSpecsWhileTheNodeReboots keeps what keeps others off the node: a MachineHealthCheck would have the machine replaced.
func TestOtherSpecsWhileTheNodeReboots(t *testing.T) {
	w := cutOff(t, rebootA)
	since := w.update().Status.RebootingSince
	require.NotNil(t, since)
	w.change()
	w.ask()
	w.node.dialErr = errRefused
	w.reconcile()
	st := w.update().Status
	require.Equal(t, refitv1.PhaseApplying, st.Phase)
	require.True(t, since.Equal(st.RebootingSince))
	require.Contains(t, w.currentMachine().Annotations, clusterv1.MachineSkipRemediationAnnotation)
	require.Equal(t, "refit/uid-1", *w.leaseOf().Spec.HolderIdentity)

	w.node.dialErr, w.node.applied = nil, []node.Status{succeeded}
	w.reconcile()
	require.Nil(t, w.requirePhase(refitv1.PhaseSucceeded).RebootingSince)
	w.requireFree(false)
}

func TestPausedOnTheWay(t *testing.T) {
	pause := func(m *clusterv1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.PausedAnnotation, "")
	}
	resume := func(m *clusterv1.Machine) { delete(m.Annotations, clusterv1.PausedAnnotation) }
	for name, tc := range map[string]struct {
		begin func(*testing.T) *world
		works bool
	}{
		"while it drains":      {draining, false},
		"while the node works": {func(t *testing.T) *world { return cutOff(t, drainA) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.begin(t)
			w.machine(pause)
			calls := len(w.node.calls)
			if tc.works {
				w.node.applied = []node.Status{running}
				w.reconcile()
				w.requireKept(refitv1.ReasonPaused)
				require.Equal(t, []string{"status"}, w.node.calls, "it is only asked")
				w.node.applied, calls = []node.Status{{State: node.Succeeded}}, 2
			}
			w.reconcile()
			require.NotContains(t, w.requireWaiting(refitv1.ReasonPaused, "paused").Message, endsFirst)
			w.requireFree(tc.works)
			require.Len(t, w.node.calls, calls)
			w.machine(resume)
			if !tc.works {
				w.podGoes()
			}
			w.node.plans, w.node.applied = []node.Plan{drainA, settled}, []node.Status{succeeded}
			w.reconcile()
			w.requirePhase(refitv1.PhaseSucceeded)
			w.requireFree(false)
		})
	}
}

// TestAnotherTryWhileTheNodeWorks has a person ask for another try when work is under way on the node: what is there is adopted, and
// no pod that has come back since is drained for what has begun.
func TestAnotherTryWhileTheNodeWorks(t *testing.T) {
	w := cutOff(t, drainA)
	w.withPod()
	w.annotate(refitv1.RetryAnnotation)
	w.node.applied = []node.Status{running, running, succeeded}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	require.Equal(t, []string{"status", "plan", "apply", "status", "plan"}, w.node.calls)
}

// TestAnotherTryAfterTheWork has the work end before: then its end is no end of the new try, which drains again.
func TestAnotherTryAfterTheWork(t *testing.T) {
	for name, last := range map[string]node.Status{
		"it has ended":       {State: node.Succeeded},
		"it has failed":      {State: node.Failed, Token: 3},
		"nobody works on it": {State: node.Running, Interrupted: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := cutOff(t, drainA)
			w.withPod()
			w.annotate(refitv1.RetryAnnotation)
			w.node.applied = []node.Status{last}
			w.reconcile()
			w.requirePhase(refitv1.PhaseDraining)
			require.Equal(t, []string{"status", "plan"}, w.node.calls)
		})
	}
}

// TestOtherSpecsWhileTheNodeWorks has an update that begins again wait while what was begun before is under way on the node.
func TestOtherSpecsWhileTheNodeWorks(t *testing.T) {
	w := cutOff(t, drainA)
	before := w.update().Spec.Digest
	w.annotate(refitv1.RetryAnnotation)
	w.change()
	w.node.applied = []node.Status{running}
	w.reconcile()
	require.Zero(t, w.update().Status.Attempts)
	w.requireKept(refitv1.ReasonSpecs)
	w.ask()
	w.node.plans = []node.Plan{{Blocked: []node.Problem{{Path: "/etc/app/a", Reason: "it is a directory"}}}}
	w.node.applied = []node.Status{{State: node.Running, Digest: before}}
	w.reconcile()
	w.requireKept(refitv1.ReasonBlocked)
	w.node.applied = []node.Status{{State: node.Idle}}
	w.reconcile()
	w.requireWaiting(refitv1.ReasonBlocked, "it is a directory")
	w.requireFree(true)
}
