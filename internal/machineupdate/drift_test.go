package machineupdate

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/drift"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodedisruption"
)

// onDrift has a policy say what becomes of drift.
func onDrift(d Disruptions, what refitv1.OnDrift) Disruptions {
	return disruptionsFunc(func(m *clusterv1.Machine) (*nodedisruption.Selected, error) {
		selected, err := d.Machine(context.Background(), m)
		if err != nil {
			return nil, err
		}
		out := *selected
		out.Drift = what
		return &out, nil
	})
}

// driftWorld is a world whose machine was updated, and what compares its node.
type driftWorld struct {
	*world
	checker *drift.Checker
	metrics *prometheus.Registry
}

// updated returns a world in which the update has succeeded, an hour before.
func updated(t *testing.T, what refitv1.OnDrift) *driftWorld {
	w := newWorld(t)
	w.reconciler.Disruptions = onDrift(w.reconciler.Disruptions, what)
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	require.False(t, w.ask())
	w.reconcile()
	require.True(t, w.ask())
	w.node.calls, w.node.repairs = nil, nil
	w.said()
	w.clock.Step(time.Hour)
	metrics := prometheus.NewPedanticRegistry()
	return &driftWorld{w, &drift.Checker{
		Client: w, Live: w.reconciler.Live, Clock: w.clock, Nodes: w.reconciler, Metrics: drift.NewMetrics(metrics), Began: w.clock.Now(),
	}, metrics}
}

// said returns the events since it was asked last.
func (w *world) said() []string {
	var out []string
	for len(w.events.Events) > 0 {
		out = append(out, <-w.events.Events)
	}
	return out
}

// look has a person ask for a comparison.
func (w *driftWorld) look() {
	w.clock.Step(time.Minute)
	mu := w.update()
	metav1.SetMetaDataAnnotation(&mu.ObjectMeta, refitv1.CheckDriftAnnotation, w.clock.Now().String())
	require.NoError(w.t, w.Update(w.t.Context(), mu))
	w.check()
}

func (w *driftWorld) check() ctrl.Result {
	result, err := w.checker.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: key})
	require.NoError(w.t, err)
	return result
}

func (w *driftWorld) condition() *metav1.Condition {
	c := meta.FindStatusCondition(w.update().Status.Conditions, refitv1.DriftedCondition)
	require.NotNil(w.t, c)
	return c
}

// shows has the node show that files have changed.
func (w *driftWorld) shows(paths ...string) {
	r := node.DriftReport{Recorded: true, Digest: w.update().Spec.Digest}
	for _, p := range paths {
		r.Drift = append(r.Drift, node.Drift{Ref: node.FileRef(p), What: []string{"content"}})
	}
	w.node.drift = []node.DriftReport{r}
}

func many(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("/etc/app/%03d", i))
	}
	return out
}

func TestWhatAComparisonFinds(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange func(*driftWorld)
		status  metav1.ConditionStatus
		reason  string
		message string
		events  int
	}{
		"all as it was applied":   {func(w *driftWorld) { w.shows() }, metav1.ConditionFalse, refitv1.DriftNone, "the node shows what was applied", 0},
		"a file that has changed": {func(w *driftWorld) { w.shows("/etc/app/a") }, metav1.ConditionTrue, refitv1.DriftFound, "/etc/app/a (content); it is left as it is", 1},
		"many files":              {func(w *driftWorld) { w.shows(many(150)...) }, metav1.ConditionTrue, refitv1.DriftFound, "/etc/app/009 (content), and 140 more", 1},
		"a record of other specs": {func(w *driftWorld) {
			w.node.drift = []node.DriftReport{{Recorded: true, Digest: "another"}}
		}, metav1.ConditionTrue, refitv1.DriftOtherRecord, "restore from a backup", 1},
		"no record": {func(w *driftWorld) { w.node.drift = []node.DriftReport{{}} }, metav1.ConditionUnknown, refitv1.DriftNoRecord, "no record", 0},
		"a run that is under way": {func(w *driftWorld) {
			w.node.drift = []node.DriftReport{{Recorded: true, UnderWay: true}}
		}, metav1.ConditionUnknown, refitv1.DriftUnderWay, "being changed", 0},
		"a part that can't be read": {func(w *driftWorld) {
			w.shows()
			w.node.drift[0].Unknown = []node.Problem{{Path: "/etc/app/a", Reason: "it can't be read: input/output error"}}
		}, metav1.ConditionUnknown, refitv1.DriftNotCompared, "/etc/app/a: it can't be read", 0},
		"a node that is not reachable": {func(w *driftWorld) { w.node.dialErr = errRefused }, metav1.ConditionUnknown, refitv1.ReasonUnreachable, "connection refused", 0},
		"a wrong host key": {func(w *driftWorld) {
			w.node.dialErr = &remote.DialError{Attempts: []remote.Attempt{{Address: "192.0.2.1:22", Err: &remote.HostKeyError{Host: "192.0.2.1:22", Want: "X"}}}}
		}, metav1.ConditionUnknown, refitv1.ReasonHostKey, "nothing was sent to it", 0},
		"another machine's node": {func(w *driftWorld) {
			w.node.err = &node.AgentError{Reason: node.ReasonOtherMachine, Message: "this is the node of m2"}
		}, metav1.ConditionUnknown, refitv1.ReasonBlocked, "this is the node of m2", 0},
		"no NodeAccess": {func(w *driftWorld) {
			require.NoError(t, w.Delete(t.Context(), &refitv1.NodeAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "all"}}))
		}, metav1.ConditionUnknown, refitv1.ReasonNodeAccess, "no NodeAccess", 0},
		"a paused Machine": {func(w *driftWorld) {
			w.machine(func(m *clusterv1.Machine) { m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		}, metav1.ConditionUnknown, refitv1.ReasonPaused, "paused", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := updated(t, refitv1.ReportDrift)
			tc.arrange(w)
			w.look()
			c := w.condition()
			require.Equal(t, tc.status, c.Status)
			require.Equal(t, tc.reason, c.Reason)
			require.Contains(t, c.Message, tc.message)
			require.Len(t, w.said(), tc.events)
			mu := w.update()
			require.Equal(t, refitv1.PhaseSucceeded, mu.Status.Phase)
			require.True(t, meta.IsStatusConditionTrue(mu.Status.Conditions, refitv1.SucceededCondition))
			require.LessOrEqual(t, len(mu.Status.Drift.Resources), refitv1.MaxDriftedResources)
			require.True(t, w.ask(), "Cluster API is not told of it")
			require.NotContains(t, w.node.calls, "apply")
			calls := len(w.node.calls)
			w.check()
			require.Len(t, w.node.calls, calls, "what was asked for is done once")
		})
	}
}

func TestDriftIsListed(t *testing.T) {
	w := updated(t, refitv1.ReportDrift)
	w.shows(many(150)...)
	w.look()
	d := w.update().Status.Drift
	require.Len(t, d.Resources, 100)
	require.EqualValues(t, 150, d.Total)
	require.Equal(t, refitv1.DriftedResource{Kind: "File", Name: "/etc/app/000", What: []string{"content"}}, d.Resources[0])
	require.Equal(t, w.clock.Now().Unix(), d.CheckedAt.Unix())
	w.shows()
	w.look()
	d = w.update().Status.Drift
	require.Empty(t, d.Resources)
	require.Zero(t, d.Total)
}

// TestUnreachableIsNoNews: a node that comes and goes is told of once.
func TestUnreachableIsNoNews(t *testing.T) {
	w := updated(t, refitv1.ReportDrift)
	w.shows("/etc/app/a")
	w.look()
	require.Len(t, w.said(), 1)
	compared := w.update().Status.Drift.ComparedAt
	w.node.dialErr = errRefused
	w.look()
	d := w.update().Status.Drift
	require.Len(t, d.Resources, 1, "what was found before is as of then")
	require.Equal(t, compared.Unix(), d.ComparedAt.Unix())
	w.node.dialErr = nil
	w.look()
	require.Equal(t, metav1.ConditionTrue, w.condition().Status)
	require.Empty(t, w.said())
	w.shows()
	w.look()
	w.shows("/etc/app/a")
	w.look()
	require.Len(t, w.said(), 1, "that it has drifted again is news")
}

// TestComparisonThatIsOvertaken: what was found about specs that nobody wants any more is not written.
func TestComparisonThatIsOvertaken(t *testing.T) {
	w := updated(t, refitv1.ReportDrift)
	w.shows("/etc/app/a")
	w.node.before = func(string) {
		w.change()
		w.ask()
	}
	mu := w.update()
	mu.Annotations = map[string]string{refitv1.CheckDriftAnnotation: "1"}
	require.NoError(t, w.Update(t.Context(), mu))
	_, err := w.checker.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	require.Error(t, err)
	require.Equal(t, metav1.ConditionFalse, w.condition().Status)
	require.Empty(t, w.said())
}

func TestTheEndOfAnUpdateIsAComparison(t *testing.T) {
	w := newWorld(t)
	w.node.plans = []node.Plan{writeA, {Drift: []node.Drift{{Ref: node.FileRef("/etc/app/b"), What: []string{"mode"}}}}}
	w.node.applied = []node.Status{succeeded}
	w.ask()
	w.reconcile()
	mu := w.update()
	require.True(t, meta.IsStatusConditionTrue(mu.Status.Conditions, refitv1.DriftedCondition))
	require.Equal(t, "/etc/app/b", mu.Status.Drift.Resources[0].Name)
	require.Contains(t, fmt.Sprint(w.said()), "NodeDrifted")
}

func TestDriftMetrics(t *testing.T) {
	w := updated(t, refitv1.ReportDrift)
	w.shows("/etc/app/a")
	w.look()
	w.look()
	w.node.dialErr = errRefused
	w.look()
	w.node.dialErr = nil
	require.NoError(t, testutil.GatherAndCompare(w.metrics, strings.NewReader(`
# HELP refit_drift_checks_total Comparisons of nodes with what was applied to them, by outcome: AsApplied, Drifted or Unknown.
# TYPE refit_drift_checks_total counter
refit_drift_checks_total{outcome="Drifted"} 2
refit_drift_checks_total{outcome="Unknown"} 1
`)))

	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(&Collector{Client: w.Client})
	shows := func(n int) {
		require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(fmt.Sprintf(`
# HELP refit_drifted_machines Machines whose nodes no longer showed what was applied to them when they were compared last.
# TYPE refit_drifted_machines gauge
refit_drifted_machines{namespace=%q} %d
`, w.update().Namespace, n)), "refit_drifted_machines"))
	}
	shows(0) // it is not known any more
	w.look()
	shows(1)
}

func TestDriftRefusesUpdates(t *testing.T) {
	drifted := node.Plan{Changes: writeA.Changes, Actions: writeA.Actions, Drift: []node.Drift{{Ref: node.FileRef("/etc/app/b"), What: []string{"content"}}}}
	conflict := node.Plan{Changes: []node.Change{{Ref: node.FileRef("/etc/app/a"), Operation: node.Write, Conflict: true}}, Actions: writeA.Actions}
	for name, tc := range map[string]struct {
		plan   node.Plan
		drift  refitv1.OnDrift
		phase  refitv1.Phase
		naming string
	}{
		"what the specs did not change": {drifted, refitv1.RefuseDrift, refitv1.PhaseWaiting, "/etc/app/b (content)"},
		"what they did change":          {conflict, refitv1.RefuseDrift, refitv1.PhaseWaiting, "/etc/app/a (changed in the specs as well)"},
		"a node as it was applied":      {writeA, refitv1.RefuseDrift, refitv1.PhaseSucceeded, ""},
		"drift that is reported":        {drifted, refitv1.ReportDrift, refitv1.PhaseSucceeded, ""},
		"drift that is repaired":        {drifted, refitv1.RepairDrift, refitv1.PhaseSucceeded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.reconciler.Disruptions = onDrift(w.reconciler.Disruptions, tc.drift)
			w.node.plans, w.node.applied = []node.Plan{tc.plan, {}}, []node.Status{succeeded}
			w.ask()
			w.reconcile()
			mu := w.update()
			require.Equal(t, tc.phase, mu.Status.Phase, mu.Status.Message)
			if tc.naming == "" {
				return
			}
			require.Equal(t, refitv1.ReasonBlocked, mu.Status.Reason)
			require.Contains(t, mu.Status.Message, tc.naming)
			require.Contains(t, mu.Status.Message, "or set drift of the policy to Report")
			require.NotContains(t, w.node.calls, "apply")
			require.Nil(t, mu.Status.Slot)

			w.node.plans = []node.Plan{writeA, {}} // somebody puts it back
			w.reconcile()
			require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase)
		})
	}
	t.Run("but not those that have begun", func(t *testing.T) {
		w := newWorld(t)
		w.reconciler.Disruptions = onDrift(w.reconciler.Disruptions, refitv1.RefuseDrift)
		w.node.plans, w.node.applied = []node.Plan{writeA}, []node.Status{{State: node.Running}}
		w.node.before = func(verb string) {
			if verb == "status" {
				w.node.err = &node.AgentError{Reason: node.ReasonInternal, Message: "away"}
			}
		}
		w.ask()
		w.reconcile()
		require.EqualValues(t, 1, w.update().Status.Attempts)
		w.node.before, w.node.err = nil, nil
		w.node.plans, w.node.applied = []node.Plan{drifted, {}}, []node.Status{{State: node.Running}, {State: node.Running}, succeeded}
		w.reconcile()
		require.Equal(t, refitv1.PhaseSucceeded, w.update().Status.Phase, w.update().Status.Message)
	})
}
