package machineupdate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// faultyGate fails to ask, or to admit, before it has tried to write anything.
type faultyGate struct {
	Gate
	ask, admit error
}

func (g *faultyGate) Ask(ctx context.Context, m *clusterv1.Machine, mu *refitv1.MachineUpdate) (changemanagement.Decision, error) {
	if g.ask != nil {
		return changemanagement.Decision{}, g.ask
	}
	return g.Gate.Ask(ctx, m, mu)
}

func (g *faultyGate) Admit(ctx context.Context, m *clusterv1.Machine, mu *refitv1.MachineUpdate, write func(refitv1.Admission) error) (changemanagement.Decision, error) {
	if g.admit != nil {
		return changemanagement.Decision{}, g.admit
	}
	return g.Gate.Admit(ctx, m, mu, write)
}

// TestTheBeginningIsWrittenBeforePoliciesAreAsked: an error drops what was told, and since when it is wanted nobody finds out again.
func TestTheBeginningIsWrittenBeforePoliciesAreAsked(t *testing.T) {
	w := newWorld(t)
	w.succeed()
	w.change()
	w.mark(true)
	w.ask()
	asked := w.clock.Now()
	gate := &faultyGate{Gate: w.reconciler.Gate, ask: errors.New("etcd is slow")}
	w.reconciler.Gate = gate
	for range 10 {
		_, err := w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		require.Error(t, err)
		w.clock.Step(30 * time.Minute)
	}
	mu := w.update()
	gate.ask = nil
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	require.Equal(t, mu.Spec.Digest, mu.Status.ObservedDigest, "people see that it has begun")
	require.NotNil(t, mu.Status.WantedSince)
	require.WithinDuration(t, asked, mu.Status.WantedSince.Time, time.Minute)
}

// TestWhatIsShownWhileTheNodeIsAsked: Plan takes as long as it takes, and what is shown meanwhile is about the specs that are asked for.
func TestWhatIsShownWhileTheNodeIsAsked(t *testing.T) {
	w := newWorld(t)
	w.succeed()
	w.change()
	w.mark(true)
	w.ask()
	w.node.calls = nil
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	var shown []refitv1.MachineUpdateStatus
	w.node.before = func(verb string) {
		if verb == "plan" {
			shown = append(shown, w.update().Status)
		}
	}
	w.reconcile()
	for i, s := range shown {
		t.Logf("plan %d: phase %q step %q message %q, about the specs asked for: %v", i, s.Phase, s.Step, s.Message, s.ObservedDigest == w.update().Spec.Digest)
	}
	require.Len(t, shown, 2)
	require.Equal(t, w.update().Spec.Digest, shown[0].ObservedDigest)
	require.Equal(t, refitv1.PhasePending, shown[0].Phase)
	require.Equal(t, refitv1.PhaseApplying, shown[1].Phase)
}

// TestAGateThatFailsTakesNoSlot: nothing was written, so that none counts as taken in memory either.
func TestAGateThatFailsTakesNoSlot(t *testing.T) {
	w := under(t, restartA)
	w.reconciler.Gate = &faultyGate{Gate: w.reconciler.Gate, admit: errors.New("read the MachineUpdates: etcd is slow")}
	_, err := w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	require.ErrorContains(t, err, "etcd is slow")
	require.Nil(t, w.update().Status.Slot)
	require.Nil(t, w.update().Status.Admission)

	other := w.addMachine("m2", "c1", "192.0.2.2")
	var m clusterv1.Machine
	require.NoError(t, w.Get(t.Context(), other, &m))
	var first clusterv1.Machine
	require.NoError(t, w.Get(t.Context(), key, &first))
	require.Equal(t, first.Spec.ClusterName, m.Spec.ClusterName)
	var mu refitv1.MachineUpdate
	require.NoError(t, w.Get(t.Context(), other, &mu))
	c, err := w.reconciler.Workloads.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: first.Spec.ClusterName})
	require.NoError(t, err)
	u := &update{Reconciler: w.reconciler, mu: &mu, regarding: &m}
	u.occupied.cluster = c
	full, err := w.reconciler.Slots.Take(t.Context(), &m, &mu, u.peers(), func() error { return nil })
	require.NoError(t, err)
	require.NotNil(t, full, "its node is not ready")
	require.NotContains(t, full.Message, "updating", "nobody has a slot")
}

// finalized puts the finalizer on the MachineUpdate, as the first reconciliation does, and returns it.
func (w *world) finalized() *refitv1.MachineUpdate {
	mu := w.update()
	mu.Finalizers = append(mu.Finalizers, refitv1.UpdateFinalizer)
	require.NoError(w.t, w.Update(w.t.Context(), mu))
	return w.update()
}

// behind has the cache say of the MachineUpdate what it was.
func (w *world) behind(old *refitv1.MachineUpdate) {
	w.reconciler.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if mu, ok := obj.(*refitv1.MachineUpdate); ok && k == key {
				old.DeepCopyInto(mu)
				return nil
			}
			return c.Get(ctx, k, obj, opts...)
		},
	})
}

// TestACacheBehindLeavesTheLeaseOfRunningWork, of work that does not disturb.
func TestACacheBehindLeavesTheLeaseOfRunningWork(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.plans = []node.Plan{writeA}
	w.node.applyErr = errRefused // the answer is lost; the node works
	old := w.finalized()
	w.reconcile()
	st := w.update().Status
	require.NotNil(t, st.ApplyingSince)
	require.NotEmpty(t, *w.leaseOf().Spec.HolderIdentity)
	w.behind(old)
	w.reconcile()
	require.NotNil(t, w.update().Status.ApplyingSince)
	require.NotEmpty(t, *w.leaseOf().Spec.HolderIdentity, "the node's work may be under way")
}

// TestACacheBehindTakesNoLease of the node of a MachineUpdate that is gone.
func TestACacheBehindTakesNoLease(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.plans = []node.Plan{writeA}
	old := w.finalized()
	gone := w.update()
	gone.Finalizers = nil
	require.NoError(t, w.Update(t.Context(), gone))
	require.NoError(t, w.Delete(t.Context(), gone))
	w.behind(old)
	w.reconcile()
	require.Empty(t, w.node.calls)
	require.Empty(t, w.leaseOf().Spec.HolderIdentity)
}

// TestAPlanThatIsNotWrittenIsNotBelieved: a policy makes the change quiet; the first write after the node has said so is in conflict.
func TestAPlanThatIsNotWrittenIsNotBelieved(t *testing.T) {
	for name, conflict := range map[string]bool{"written": false, "in conflict": true} {
		t.Run(name, func(t *testing.T) {
			w := under(t, restartA, nightly())
			w.node.plans = []node.Plan{restartA}
			w.reconcile()
			w.requireWaiting(refitv1.ReasonWindow, "it takes: Restart app.service")

			allowed, err := disruption.AllowPaths([]string{"/etc/app"})
			require.NoError(t, err)
			w.reconciler.Disruptions = fixedRules(t, disruption.Rules{Files: allowed}, "calm") // by it the change disturbs nobody
			w.node.plans = []node.Plan{writeA, {}}
			w.node.calls = nil
			if conflict {
				w.node.before = func(verb string) { // a person annotates the MachineUpdate just then
					if verb == "plan" {
						mu := w.update()
						mu.Annotations = map[string]string{"note": "looking at it"}
						require.NoError(t, w.Update(t.Context(), mu))
						w.node.before = nil
					}
				}
			}
			w.reconcile()
			for range 5 {
				w.reconcile()
			}
			st := w.update().Status
			t.Logf("calls %v, phase %s reason %s: %s", w.node.calls, st.Phase, st.Reason, st.Message)
			require.Equal(t, refitv1.PhaseSucceeded, st.Phase)
		})
	}
}

// TestNoLeaseInAPausedCluster: what a cache says of the Cluster does not count.
func TestNoLeaseInAPausedCluster(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.plans = []node.Plan{writeA}
	w.finalized()
	var cluster clusterv1.Cluster
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: w.currentMachine().Spec.ClusterName}, &cluster))
	old := cluster.DeepCopy()
	paused := true
	cluster.Spec.Paused = &paused
	require.NoError(t, w.Update(t.Context(), &cluster))
	w.reconciler.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if cl, ok := obj.(*clusterv1.Cluster); ok {
				old.DeepCopyInto(cl)
				return nil
			}
			return c.Get(ctx, k, obj, opts...)
		},
	})
	w.reconcile()
	require.Empty(t, w.node.calls)
	require.Empty(t, w.leaseOf().ResourceVersion, "nothing is written to the workload cluster")
}

// TestACacheBehindADrain: the stale start is refused, and leaves lease, cordon and status.
func TestACacheBehindADrain(t *testing.T) {
	w := newWorld(t)
	w.withPod()
	w.ask()
	old := w.finalized()
	w.node.plans, w.node.applied = []node.Plan{drainA}, []node.Status{succeeded}
	w.reconcile()
	before := w.requirePhase(refitv1.PhaseDraining)
	w.behind(old)
	w.reconcile()
	st := w.update().Status
	require.Equal(t, before, st)
	require.Len(t, st.Starts, 1)
	require.True(t, w.clusterNode().Spec.Unschedulable)
	require.NotEmpty(t, *w.leaseOf().Spec.HolderIdentity)
	w.reconciler.Client = w.Client
	w.podGoes()
	w.node.plans = []node.Plan{drainA, {}}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	w.requireFree(false)
}

// TestTheLastStatusIsLost after the record that took the finalizer along.
func TestTheLastStatusIsLost(t *testing.T) {
	w := newWorld(t)
	w.ask()
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	lost := false
	w.reconciler.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			if mu := obj.(*refitv1.MachineUpdate); mu.Status.Phase == refitv1.PhaseSucceeded && !lost {
				lost = true
				return errors.New("connection reset")
			}
			return c.SubResource(sub).Update(ctx, obj, opts...)
		},
	})
	_, _ = w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}) // that the update has ended is recorded
	require.True(t, lost)
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	require.Equal(t, []string{"plan", "apply", "plan"}, w.node.calls)
	w.requireFree(false)
}
