package machineupdate

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drift"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodeaccess"
)

// repairs has the node show a change that a repair brings back.
func (w *driftWorld) repairs(plans ...node.Plan) {
	w.shows("/etc/app/a")
	run := succeeded
	run.Token = 1 << 40
	w.node.plans, w.node.applied = plans, []node.Status{run}
}

func TestRepair(t *testing.T) {
	w := updated(t, refitv1.RepairDrift)
	w.repairs(restartA, node.Plan{})
	w.checker.Interval = time.Hour
	w.clock.Step(2 * time.Hour)
	w.check()
	mu := w.update()
	require.Equal(t, refitv1.PhasePending, mu.Status.Phase)
	require.NotNil(t, mu.Status.Repair)
	require.Contains(t, mu.Status.Message, "/etc/app/a (content); it is being brought back")
	require.Equal(t, []string{"drift"}, w.node.calls, "a comparison takes no lease and changes nothing")
	require.False(t, w.ask())
	require.Len(t, w.said(), 1)

	before := mu.Status.Token
	w.reconcile()
	mu = w.update()
	require.Equal(t, refitv1.PhaseSucceeded, mu.Status.Phase, mu.Status.Message)
	require.Nil(t, mu.Status.Repair)
	require.Equal(t, []string{"drift", "plan", "apply", "plan"}, w.node.calls)
	require.Equal(t, []bool{true, true, true}, w.node.repairs)
	require.Greater(t, mu.Status.Token, before, "with a lease of its own")
	require.Len(t, mu.Status.Starts, 1, "it counts against budgets")
	require.EqualValues(t, 1, mu.Status.Drift.Repairs)
	require.Equal(t, metav1.ConditionFalse, w.condition().Status)
	require.True(t, w.ask())

	w.shows()
	w.look()
	require.Zero(t, w.update().Status.Drift.Repairs)
}

func TestRepairWaitsForItsWindow(t *testing.T) {
	w := updated(t, refitv1.RepairDrift)
	require.NoError(t, w.Create(t.Context(), nightly()))
	w.readPolicies()
	w.repairs(restartA, restartA, node.Plan{})
	w.bypass(w.update().Spec.Digest) // what has let the update go does not let its repairs go
	w.look()
	w.reconcile()
	mu := w.update()
	require.Equal(t, refitv1.ReasonWindow, mu.Status.Reason, mu.Status.Message)
	require.NotContains(t, w.node.calls, "apply")
	require.Contains(t, mu.Status.Message, mu.ChangeID())
	require.NotEqual(t, mu.Spec.Digest, mu.ChangeID())

	w.bypass(mu.ChangeID())
	w.reconcile()
	require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase, w.update().Status.Message)
}

// bypass has the Machine's change with the id go at once.
func (w *driftWorld) bypass(id string) {
	w.machine(func(m *clusterv1.Machine) { m.Annotations = map[string]string{refitv1.BypassAnnotation: id} })
}

func TestRepairIsWithdrawn(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*driftWorld)
		why    string
	}{
		"when no policy asks for it any more": {func(w *driftWorld) {
			w.reconciler.Disruptions = onDrift(w.reconciler.Disruptions, refitv1.ReportDrift)
		}, "no NodeDisruptionPolicy asks for it"},
		"when the specs have changed": {func(w *driftWorld) { w.change() }, "the specs have changed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := updated(t, refitv1.RepairDrift)
			require.NoError(t, w.Create(t.Context(), nightly()))
			w.readPolicies()
			w.repairs(restartA)
			w.look()
			w.reconcile()
			require.Equal(t, refitv1.ReasonWindow, w.update().Status.Reason)
			w.clock.SetTime(time.Date(2026, 10, 3, 22, 30, 0, 0, time.UTC))
			tc.change(w)
			w.reconcile()
			mu := w.update()
			require.Equal(t, refitv1.PhaseSucceeded, mu.Status.Phase, mu.Status.Message)
			require.Contains(t, mu.Status.Message, tc.why)
			require.Nil(t, mu.Status.Repair)
			require.Nil(t, mu.Status.Slot)
			require.Equal(t, metav1.ConditionTrue, w.condition().Status, "the node has drifted all the same")
			require.NotContains(t, w.node.calls, "apply")
		})
	}
}

func TestWhatIsNotRepaired(t *testing.T) {
	t.Run("specs that have changed since", func(t *testing.T) {
		w := updated(t, refitv1.RepairDrift)
		w.repairs(restartA)
		w.change()
		w.look()
		require.Nil(t, w.update().Status.Repair)
		require.Contains(t, w.condition().Message, "it is not brought back: the specs have changed")
	})
	t.Run("what a policy leaves alone or refuses", func(t *testing.T) {
		for drift, says := range map[refitv1.OnDrift]string{refitv1.ReportDrift: "left as it is", refitv1.RefuseDrift: "the next update of the Machine waits"} {
			w := updated(t, drift)
			w.repairs(restartA)
			w.look()
			require.Nil(t, w.update().Status.Repair)
			require.Contains(t, w.condition().Message, says)
		}
	})
	t.Run("what comes back again and again", func(t *testing.T) {
		w := updated(t, refitv1.RepairDrift)
		w.checker.Interval = time.Hour
		for n := range maxRepairs {
			w.repairs(restartA, node.Plan{})
			w.clock.Step(2 * time.Hour)
			w.check()
			w.reconcile()
			require.EqualValues(t, n+1, w.update().Status.Drift.Repairs, w.update().Status.Message)
		}
		w.repairs(restartA, node.Plan{})
		w.clock.Step(2 * time.Hour)
		w.check()
		require.Nil(t, w.update().Status.Repair)
		require.Contains(t, w.condition().Message, "refit drift --now -n lab m1")
		w.look()
		require.NotNil(t, w.update().Status.Repair, "a person who asks has looked at it")
	})
	t.Run("what a repair could not bring back", func(t *testing.T) {
		w := updated(t, refitv1.RepairDrift)
		stays := node.Plan{Drift: []node.Drift{{Ref: node.FileRef("/etc/app/a"), What: []string{"content"}}}}
		w.repairs(stays, stays)
		w.node.applied[0].Changes = nil
		w.look()
		w.reconcile()
		require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase, w.update().Status.Message)
		require.Contains(t, w.condition().Message, "the repair could not bring it back")
		w.checker.Interval = time.Hour
		w.clock.Step(2 * time.Hour)
		w.check()
		require.Nil(t, w.update().Status.Repair)
	})
}

func TestFailedRepair(t *testing.T) {
	w := updated(t, refitv1.RepairDrift)
	w.repairs(restartA)
	w.node.applied[0].State, w.node.applied[0].Message = node.Failed, "restart app.service failed"
	w.look()
	w.reconcile()
	mu := w.update()
	require.Equal(t, refitv1.PhaseFailed, mu.Status.Phase)
	require.NotNil(t, mu.Status.Slot, "it keeps its slot, as any update that fails")
	calls := len(w.node.calls)
	w.checker.Interval = time.Minute
	w.clock.Step(time.Hour)
	w.check()
	require.Len(t, w.node.calls, calls)

	mu.Annotations[refitv1.RetryAnnotation] = "1"
	require.NoError(t, w.Update(t.Context(), mu))
	w.repairs(restartA, node.Plan{})
	w.node.applied[0].Token++
	w.node.repairs = nil
	w.reconcile()
	mu = w.update()
	require.Equal(t, refitv1.PhaseSucceeded, mu.Status.Phase, mu.Status.Message)
	require.Equal(t, []bool{true, true, true}, w.node.repairs, "another try is one to repair")

	w.change()
	w.ask()
	w.node.plans, w.node.repairs = []node.Plan{writeA, {}}, nil
	w.reconcile()
	require.Equal(t, []bool{false, false, false}, w.node.repairs, "other specs are no repair")
}

// repaired has the node of a walk drift after its update, and brings it back in a world in which a fault happens. It returns the
// calls that it took.
func repaired(t *testing.T, dir string, f fault, nth int) []call {
	t.Helper()
	w := newWalkWorld(walkContext(), t, dir, restartPath, newFault(nothing, -1))
	defer w.node.end()
	w.drift = refitv1.RepairDrift
	w.leader = w.start()
	w.finish()
	entries := len(w.node.journal())
	w.node.units = nil
	w.node.put(restartPath, "mine\n")
	w.podIsBack()

	w.plan = newFault(f, nth)
	metrics := drift.NewMetrics(prometheus.NewRegistry())
	for n := 0; ; n++ {
		mu := w.update()
		if d := mu.Status.Drift; mu.Status.Phase == refitv1.PhaseSucceeded && d != nil && d.Repairs > 0 {
			break
		}
		require.Less(t, n, maxRounds, "%s: %s %s: %s", w.plan, mu.Status.Phase, mu.Status.Reason, mu.Status.Message)
		mu.Annotations = map[string]string{refitv1.CheckDriftAnnotation: fmt.Sprint(n)}
		require.NoError(t, w.base.Update(w.ctx, mu))
		r := w.leader.Reconciler
		checker := &drift.Checker{Client: r.Client, Live: r.Live, Clock: r.Clock, Nodes: r, Metrics: metrics}
		_, _ = checker.Reconcile(w.ctx, ctrl.Request{NamespacedName: key}) // what comes of it is seen in the end
		w.round()
	}
	where := w.plan.String()
	require.Empty(t, w.early, where)
	require.Equal(t, secretContent+"\n", w.node.read(restartPath), where)
	require.Equal(t, []string{"restart app.service"}, w.node.units, where)
	done := map[string]int{}
	for _, e := range w.node.journal()[entries:] {
		done[e.Event+" "+e.Step]++
	}
	require.Equal(t, 1, done["run-started "], where)
	require.Equal(t, 1, done["step-done write "+restartPath], where)
	// One that ended before it could write the status has left what the record knows, which is not what had drifted.
	require.False(t, meta.IsStatusConditionTrue(w.update().Status.Conditions, refitv1.DriftedCondition), where)
	if f == nothing {
		require.True(t, meta.IsStatusConditionFalse(w.update().Status.Conditions, refitv1.DriftedCondition))
	}
	w.node.requireClean(where)
	w.requireLeft(where)
	return *w.plan.calls
}

// podIsBack has a pod run on the node again, for a repair to drain.
func (w *walkWorld) podIsBack() {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web-1", UID: "uid-of-web-1"}}
	pod.Spec.NodeName, pod.Status.Phase = nodeName, corev1.PodRunning
	_, err := w.workload.Clientset.CoreV1().Pods("web").Create(w.ctx, pod, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// read returns what is at a path of the node.
func (n *walkNode) read(path string) string {
	content, err := os.ReadFile(filepath.Join(n.root, path))
	require.NoError(n.t, err)
	return string(content)
}

// TestRepairWalk has faults happen at each call of a repair: it drains the node before it is changed, and is made once.
func TestRepairWalk(t *testing.T) {
	t.Parallel()
	dir, points := memoryDir(t), 0
	for nth, c := range repaired(t, memoryDir(t), nothing, -1) {
		for _, f := range []fault{killedBefore, killedAfter, answerLost, leaseStolen} {
			if !f.applies(nth, c) {
				continue
			}
			points++
			if !walked(points) {
				continue
			}
			root := fmt.Sprint(dir, "/", points)
			t.Run(fmt.Sprintf("%s/%d/%s", f, nth, c), func(t *testing.T) { repaired(t, root, f, nth) })
		}
	}
	t.Logf("%d points, one in %d was walked", points, stride())
	require.Greater(t, points, 50)
}

// TestARunBeforeTheRepairSaysNothing: that the update succeeded does not mean that its repair has begun on the node. Without the
// workload cluster's API server only what has begun is taken to its end.
func TestARunBeforeTheRepairSaysNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		token int64
		want  node.RunState
	}{
		"the run of the update": {5, node.Idle},
		"the repair's own":      {6, node.Succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			w := updated(t, refitv1.RepairDrift)
			w.repairs(restartA)
			w.look()
			u := &update{Reconciler: w.reconciler, mu: w.update()}
			u.mu.Status.Attempts, u.mu.Status.Repair.Token = 1, 5
			w.node.applied[0].Token, w.node.digest = tc.token, u.mu.Spec.Digest
			conn, err := w.node.Dial(t.Context(), remote.Target{})
			require.NoError(t, err)
			u.agent, err = (&nodeaccess.Access{}).Client(conn, u.Agents)
			require.NoError(t, err)
			u.request = &node.Request{Digest: u.mu.Spec.Digest}
			last, err := u.lastRun(t.Context())
			require.NoError(t, err)
			require.Equal(t, tc.want, last.State)
		})
	}
}
