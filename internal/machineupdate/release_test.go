package machineupdate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/protection"
	"github.com/capi-refit/refit/internal/workload"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// deleteMachine asks for the deletion of the world's Machine, which something else keeps until refit's hook is off.
func (w *world) deleteMachine() {
	w.machine(func(m *clusterv1.Machine) { m.Finalizers = []string{"test/stay"} })
	require.NoError(w.t, w.Delete(w.t.Context(), &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}))
}

// requireReleased requires that nothing of refit's keeps the Machine.
func (w *world) requireReleased() {
	w.t.Helper()
	st := w.requireWaiting(refitv1.ReasonDeleting, "its node is not touched any more")
	require.Nil(w.t, st.Slot)
	require.Nil(w.t, st.Node)
	require.Nil(w.t, st.Drain)
	require.Nil(w.t, st.ApplyingSince)
	for _, a := range []string{protection.AddedAnnotation, clusterv1.MachineSkipRemediationAnnotation, clusterv1.PreDrainDeleteHookAnnotationPrefix + "/refit"} {
		require.NotContains(w.t, w.currentMachine().Annotations, a)
	}
}

// atNow has the world's clock be the one by which its API server says when a deletion was asked for.
func (w *world) atNow() *world {
	w.clock.SetTime(time.Now())
	return w
}

func TestAMachineIsDeleted(t *testing.T) {
	applying := func(t *testing.T) *world { return cutOff(t, drainA).atNow() }
	for name, tc := range map[string]struct {
		begin    func(*testing.T) *world
		node     node.Status
		away     bool
		cordoned bool
	}{
		"while its update waits":                             {begin: func(t *testing.T) *world { return planned(t, drainA) }},
		"while its node is drained":                          {begin: draining, cordoned: true},
		"and its cluster with it, while its node is drained": {begin: draining, away: true},
		"when the work on its node has ended":                {begin: applying, node: node.Status{State: node.Succeeded}, cordoned: true},
		"when nobody does the work on its node any more":     {begin: applying, node: node.Status{State: node.Running, Interrupted: true}, cordoned: true},
		"and its cluster with it, after the work":            {begin: applying, node: node.Status{State: node.Failed}, away: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.begin(t)
			w.deleteMachine()
			w.node.applied = []node.Status{tc.node}
			if tc.away {
				w.workload.Err = workload.ErrUnavailable
			}
			require.Positive(t, w.reconcile().RequeueAfter)
			w.requireReleased()
			if !tc.away {
				w.requireFree(tc.cordoned) // Cluster API drains it next
			}
			require.NotContains(t, w.node.calls, "apply")
			w.reconcile()
			w.requireReleased()
		})
	}
}

// TestADeletedMachineWaitsForTheWorkOnItsNode keeps the Machine until the work has ended, or for as long as that may take.
func TestADeletedMachineWaitsForTheWorkOnItsNode(t *testing.T) {
	for name, end := range map[string]func(*world){
		"it ends":                  func(w *world) { w.node.applied = []node.Status{{State: node.Succeeded}} },
		"it takes too long":        func(w *world) { w.clock.Step(safePoint + time.Minute) },
		"the node does not answer": func(w *world) { w.node.dialErr = errRefused },
		"the agent does not answer": func(w *world) {
			w.node.err = &node.AgentError{Reason: node.ReasonInternal, Message: "no space left on device"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := cutOff(t, drainA).atNow()
			w.deleteMachine()
			w.node.applied = []node.Status{{State: node.Running}}
			require.Equal(t, retryDrain, w.reconcile().RequeueAfter)
			require.Contains(t, w.update().Status.Message, "what runs on its node ends first")
			require.Contains(t, w.currentMachine().Annotations, clusterv1.PreDrainDeleteHookAnnotationPrefix+"/refit")
			end(w)
			w.reconcile()
			w.requireReleased()
		})
	}
}

// failed returns a world whose node has failed, and has put back everything or not.
func failed(t *testing.T, rolledBack bool) *world {
	w := planned(t, drainA)
	w.node.applied = []node.Status{{State: node.Failed, Token: 3, Message: "restart app.service failed", RolledBack: rolledBack}}
	require.Zero(t, w.reconcile())
	st := w.requirePhase(refitv1.PhaseFailed)
	require.Equal(t, "NodeFailed", st.Reason)
	require.Equal(t, int64(3), st.FailedToken)
	require.NotNil(t, st.Slot, "it does not walk through the fleet")
	w.node.calls = nil
	return w
}

func TestANodeThatFailed(t *testing.T) {
	for name, rolledBack := range map[string]bool{"and was put back": true, "and may be half changed": false} {
		t.Run(name, func(t *testing.T) {
			w := failed(t, rolledBack)
			w.requireFree(!rolledBack)
			if rolledBack {
				require.NotContains(t, w.update().Status.Message, "cordoned")
			} else {
				require.Contains(t, w.update().Status.Message, "the node stays cordoned, since it may be half changed")
			}
			require.Zero(t, w.reconcile())
			require.Empty(t, w.node.calls, "not without being asked")

			w.annotate(refitv1.RetryAnnotation)
			w.node.plans, w.node.applied = []node.Plan{drainA, settled}, []node.Status{succeeded}
			w.reconcile()
			st := w.requirePhase(refitv1.PhaseSucceeded)
			require.Nil(t, st.Slot)
			w.requireFree(false)
		})
	}
}

func TestAFailedUpdateIsAbandoned(t *testing.T) {
	w := failed(t, false)
	w.annotate(refitv1.AbandonAnnotation)
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseFailed)
	require.Nil(t, st.Slot)
	require.Nil(t, st.Node)
	require.Contains(t, st.Message, "it was abandoned")
	require.Empty(t, w.node.calls)
	w.requireFree(false)
	before := w.update().ResourceVersion
	require.Zero(t, w.reconcile())
	require.Equal(t, before, w.update().ResourceVersion, "once")
	require.False(t, w.ask())
}

// TestAFailureIsNotForgotten has the server end before it could tell of a failure on the node.
func TestAFailureIsNotForgotten(t *testing.T) {
	w := cutOff(t, drainA)
	w.node.applied = []node.Status{{State: node.Failed, Token: 3, Message: "restart app.service failed"}}
	w.reconcile()
	st := w.requirePhase(refitv1.PhaseFailed)
	require.Contains(t, st.Message, "the node reports: restart app.service failed")
	require.NotContains(t, w.node.calls, "apply", "another try is for a person to ask for")
}

// TestAFailureWhoseNodeCantBeGivenBack waits for the API server before it says that the update has failed.
func TestAFailureWhoseNodeCantBeGivenBack(t *testing.T) {
	w := cutOff(t, drainA)
	w.workload.Err = workload.ErrUnavailable
	w.node.applied = []node.Status{{State: node.Failed, Token: 3, Message: "restart app.service failed"}}
	w.reconcile()
	w.requireWaiting(refitv1.ReasonWorkload, "")
	w.workload.Err = nil
	w.reconcile()
	w.requirePhase(refitv1.PhaseFailed)
	w.requireFree(true)
}

func TestReboot(t *testing.T) {
	w := cutOff(t, rebootA)
	st := w.requirePhase(refitv1.PhaseApplying)
	require.Equal(t, "the node reboots and does not answer yet", st.Message)
	since := *st.RebootingSince

	w.node.dialErr = errRefused
	w.clock.Step(10 * time.Minute)
	require.Equal(t, retryDrain, w.reconcile().RequeueAfter)
	st = w.requirePhase(refitv1.PhaseApplying)
	require.True(t, since.Equal(st.RebootingSince), "the time counts from its beginning")
	require.True(t, w.clusterNode().Spec.Unschedulable)

	w.node.dialErr = nil
	w.node.applied = []node.Status{{State: node.Running, Interrupted: true}, succeeded}
	w.reconcile()
	st = w.requirePhase(refitv1.PhaseSucceeded)
	require.Nil(t, st.RebootingSince)
	w.requireFree(false)
}

func TestARebootThatDoesNotEnd(t *testing.T) {
	w := cutOff(t, rebootA)
	w.node.dialErr = errRefused
	w.clock.Step(2*w.reconciler.RebootTimeout + disruption.DefaultConfirmWithin + time.Second)
	require.Zero(t, w.reconcile())
	st := w.requirePhase(refitv1.PhaseFailed)
	require.Equal(t, "NodeNotBack", st.Reason)
	require.Contains(t, st.Message, "is not back after 42m0s")
	require.NotNil(t, st.Slot)
	w.requireFree(true)

	w.annotate(refitv1.RetryAnnotation)
	w.node.dialErr, w.node.plans = nil, []node.Plan{rebootA, settled}
	w.node.applied = []node.Status{{State: node.Running, Interrupted: true}, succeeded}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	w.requireFree(false)
}

// TestARebootThatOpensTheWayInAgain has a node not be reached after its reboot until it has waited for a login, put everything back, and
// rebooted once more.
func TestARebootThatOpensTheWayInAgain(t *testing.T) {
	const within = time.Hour
	begin := func(t *testing.T) *world {
		w := cutOff(t, rebootA)
		w.reconciler.Disruptions = fixedRules(t, disruption.Rules{ConfirmWithin: within, Files: disruption.Table{{Path: "/etc/app", Actions: rebootA.Actions}}})
		w.node.dialErr = errRefused
		w.clock.Step(2*w.reconciler.RebootTimeout + within - time.Second)
		w.reconcile()
		w.requirePhase(refitv1.PhaseApplying)
		return w
	}
	t.Run("is waited for", func(t *testing.T) {
		w := begin(t)
		w.node.dialErr = nil
		w.node.applied = []node.Status{{State: node.Failed, Token: w.update().Status.Token, Message: "no login came; everything was put back"}}
		w.reconcile()
		require.Contains(t, w.requirePhase(refitv1.PhaseFailed).Message, "everything was put back")
	})
	t.Run("and not for ever", func(t *testing.T) {
		w := begin(t)
		w.clock.Step(2 * time.Second)
		w.reconcile()
		st := w.requirePhase(refitv1.PhaseFailed)
		require.Equal(t, "NodeNotBack", st.Reason)
		require.Contains(t, st.Message, "is not back after 1h40m0s")
	})
}

// TestANodeThatDoesNotRebootIsUnreachable tells the two apart.
func TestANodeThatDoesNotRebootIsUnreachable(t *testing.T) {
	w := cutOff(t, drainA)
	w.node.dialErr = errRefused
	w.reconcile()
	st := w.requireWaiting(refitv1.ReasonUnreachable, "connection refused")
	require.Nil(t, st.RebootingSince)
	require.True(t, workloadtest.IsReady(w.clusterNode()))
}

// TestWhatIsWrittenInTheEnd requires that all of refit's is off the node before Cluster API can be told that the update is done.
func TestWhatIsWrittenInTheEnd(t *testing.T) {
	var writes []string
	for _, c := range survive(t, memoryDir(t), restartPath, nothing, -1) {
		if c.writes && c.place != machineItself {
			writes = append(writes, c.String())
		}
	}
	require.Equal(t, []string{
		"workload patch Node", "workload patch PartialObjectMetadata", "management patch PartialObjectMetadata", // cordon and markers
		"workload update Lease", "management patch MachineUpdate", "management update status of MachineUpdate", // the record first, and with it the finalizer
	}, writes[len(writes)-6:])
}
